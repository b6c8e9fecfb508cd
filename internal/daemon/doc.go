// Package daemon is one running kvstored: it makes the tiers, the server, the
// front ends and the admin listener that a configuration names, wires them, and
// runs them until its context ends.
//
// New makes everything and starts nothing; Run starts every goroutine and ends
// within five seconds and stop.flush of its context's end, also where a device
// hangs. A Daemon runs once.
//
// # Owns
//
// The listeners, the arena, the tiers and the order in which all of them start
// and stop; the configuration that is in force, and its reloads; the statistics
// and metrics, which it reads from the parts that count.
//
// # Never does
//
// It decides nothing about chunks: that is the store's and the server's. It
// reads no command line and handles no signal.
//
// # Locks
//
// reloads.mu guards the running configuration. It is not held over I/O or another
// lock.
//
// # Buffers
//
// None; payloads stay in the arena.
package daemon
