// Package demo plays what `kvstored demo` shows: people who chat with one
// assistant through an engine that stores and loads, and a restart of the
// daemon in the middle. With an engine that computes ([Talk]) each prompt is
// answered computed, from disk after a restart, and from DRAM.
//
// # Owns
//
// The prompts of a demo ([Chat]), its course and its result.
//
// # Never does
//
// It prints nothing and starts no process: the daemon is the caller's
// ([Daemon]), and so is the engine ([Engine]).
//
// # Locks and buffers
//
// None, and no goroutines. Payloads are made in the daemon's memory, and compared with
// one that is made beside it.
package demo
