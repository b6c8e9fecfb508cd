// Command hot measures the hot path of kvstored against what the machine can
// do at best, in one run: every round times the floors and the daemon one
// after the other, and ratios are taken within a round, so that a machine
// that drifts drifts under both. Printed are medians over the rounds.
//
//	go -C bench run ./hot
//
// Floors: C copies the same working set in the fastest of several ways, H hashes
// it cold, R is an empty round trip of a bare echo server in Go over the same
// kind of socket. A row "two in flight" has the same puts with one as its floor.
//
// "bare" is what a program takes that keeps no books: over such a socket, with
// requests as long as ours, it copies the same values through shared memory and
// makes their checksums. No client of a Unix socket can be much faster. "cpu" is the
// processor time of client and daemon. Gets are client.Read, which asks the daemon for
// nothing; those "under a lease" are a prefetch, a copy and a release.
package main
