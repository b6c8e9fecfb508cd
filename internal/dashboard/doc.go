// Package dashboard is the daemon as a page in a browser: tiers, hits and misses over
// time, the tree of stored prefixes, the holders of memory. It changes nothing.
//
// # Owns
//
// The page and its scripts, which are in the program and load nothing from elsewhere; an
// hour of samples; the stream of events that keeps pages up to date.
//
// # Never does
//
// It decides nothing, and asks for nothing that would hold up a request. Where it is told
// to show numbers only, no name of a client, prompt or prefix leaves it.
//
// # Locks
//
// One around the samples and one around the last view; leaves, not held over I/O.
//
// # Buffers
//
// A sample has about 150 bytes, of which there are 1,800. A view is made once for all
// streams of a kind, at most every second; there are [MaxStreams] streams at most, and
// one whose reader does not take an event within [writeTimeout] ends.
package dashboard
