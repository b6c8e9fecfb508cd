// Package budget bounds the memory that clients cost outside the arena: one
// [Budget] for the daemon, one [Account] for each connection.
//
// A connection charges its account before a buffer grows. Where the budget, or the
// share of one holder, does not allow it, connections end until it does: each time
// the largest one of the holder that has most. A holder is a user on this machine,
// or an address beyond it. So a client that costs little keeps its connection,
// however much other holders charge, and the end of each is counted by front and
// reason.
//
// An account takes from the budget in units, and keeps a unit or two that it does
// not need: most charges and releases are one atomic addition.
//
// Locks: Budget.mu is a leaf. A charge that had connections ended waits, without a
// lock, for the bytes that they give back.
//
// The charges cover live memory. The garbage between two collections comes on top:
// the limit of the Go heap is set for both (see [Plan]), and [Budget.Run] gives
// the memory back to the system when the daemon has come to rest after work.
package budget
