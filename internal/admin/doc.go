// Package admin is how a running daemon is asked and changed by its administrators:
// HTTP with JSON on a Unix socket of its own, described in docs/reference/admin-api.md, and the
// client with which the commands do so.
//
// # Owns
//
// The calls: their paths, rights, requests, replies and errors. routes.go has them
// all; api.go has the JSON, which a test compares with the document.
//
// The [Dashboard], which is the daemon as a page in a browser: static files that load nothing
// from elsewhere, and an hour of samples, of about 120 bytes each, 1,800 in all. Where it is
// told to show numbers only, it answers no call with names of clients, prompts or prefixes.
//
// # Never does
//
// It decides nothing about chunks or connections: it asks the store and the server.
// It is never reached over TCP, but for the page. Nothing that an engine needs is here: engines speak
// the wire protocol.
//
// # Locks
//
// Rights are judged for each request by the policy of that moment. The page has one lock around
// its samples, and one around the last statistics, which are made under it, at most every
// second for all pages.
//
// # Buffers
//
// A request has at most 64 KiB and is read whole; replies are made whole. A call
// ends with its client and with the daemon.
package admin
