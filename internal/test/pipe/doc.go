// Package pipe is connections within one process, for tests: what a stream socket of
// Unix is, without the system. Goroutines that read, write or accept here are durably
// blocked in the sense of testing/synctest, so a server and its clients run in a bubble,
// where stalls, deadlines, leases and pauses pass in virtual time.
//
// # Owns
//
// A [Listener] owns the connections that wait to be accepted. A [Conn] owns the bytes
// that were sent to it and are unread: at most [BufferBytes] a direction, after which its peer's
// writes wait, as with a socket. Open files are handed over with the first byte of a
// write: the receiver has a descriptor of its own and closes it.
//
// # Never does
//
// It never makes a system call but to duplicate descriptors. It starts no goroutine but
// the timers of deadlines.
//
// # Locks
//
// One mutex a direction, a leaf, held for the copy of bytes only. All methods are safe
// for concurrent use, as those of a net.Conn are.
package pipe
