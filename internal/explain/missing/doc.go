// Package missing names why part of a prompt was missed, counts the tokens that
// were missing, and says in one sentence what would have helped.
//
// # Owns
//
// The list of reasons, with the stable names that metrics, replies and the
// documentation use, and the counters of [Counts], an array of a few thousand numbers.
//
// # Never does
//
// The package finds nothing out: package stack says why a chunk is not there, package
// server how a request ended.
//
// # Locks
//
// None; the counters are atomic.
package missing
