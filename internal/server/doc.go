// Package server speaks the protocol of docs/protocol.md over a Unix socket:
// it owns connections, their rights, leases, fills, pins and limits, and
// turns frames into calls of a store.Store.
//
// It never knows which tiers there are or how they store anything.
//
// One goroutine a connection, its reader, reads requests and answers those that
// need not wait; one that waits (wait, flush, delete, a get from below, a reserve
// that finds no room and may wait, a running job) has a goroutine of its own, which has the session
// but nothing of the reader. The table operations says for each request who
// answers it, which rights it takes and whether it makes the connection an owner. When the connection ends,
// its jobs and fills are given back first and its goroutines are waited for then.
// Timers that end leases and fills count among them (session.whileOpen).
//
// A reader has parts that know nothing of it: rights says what the user may do, and has the
// open spaces; resolver makes chains of what a request says, and asks rights; promptLog
// remembers the prompts that were asked about last, and tells the store.
//
// Locks: session.mu guards a connection's tables, job.mu one job's lease,
// fill.mu one fill's slots, output.mu the queue of frames, pins.mu all pins,
// catalog.mu the identities of spaces, staging.mu the room of a window; none is held while another is taken,
// nor over I/O, hashing or a call of the store.
//
// Buffers: a frame's body is valid until the next read; what outlives the
// request is copied. Payloads are read and written where they lie.
package server
