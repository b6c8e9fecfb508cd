// Package daemon starts, awaits, stops and kills real kvstored processes for end-to-end
// tests, and runs single commands of the same program.
//
// # Owns
//
// The program: built once for each test process from this tree, or what
// KVSTORED_PROGRAM names. Each [Daemon] has a folder of its own, with a configuration,
// a socket, a disk folder and a log, that goes with its test, and at most one process.
// The process is killed when the test ends.
//
// # Concurrency
//
// A Daemon is used by one goroutine at a time, but for Stats, Dial and Process, which
// any may call while it runs. [Program] and [Run] may be called from any goroutine.
package daemon
