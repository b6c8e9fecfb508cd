// Package dashboard is the daemon as a page in a browser: tiers, hits and misses over
// time, the tree of stored prefixes, the holders of memory. It changes nothing.
//
// The page is static files, drawn in the browser from JSON: the daemon's statistics, an
// hour of samples, and calls of package admin.
//
// # Owns
//
// The page and its scripts, which are in the program and load nothing from elsewhere; the
// hour of samples.
//
// # Never does
//
// It decides nothing, and asks for nothing that would hold up a request. Where it is told
// to show numbers only, it answers no call with names of clients, prompts or prefixes.
//
// # Locks
//
// One around the samples; one around the last statistics, which are made under it, at most
// every second for all pages.
//
// # Buffers
//
// A sample has about 120 bytes, of which there are 1,800.
package dashboard
