// Package breaker decides when something in trouble is left alone, and when it
// is tried again: a tier, or one direction of a path of the disk tier.
//
// It owns the state of one circuit breaker and nothing else. It never makes a
// call, starts a goroutine or a timer, logs, or knows what an error means: its
// user asks Admit before each call, judges how that went, and says so with End.
//
// # Locks
//
// Each Breaker has one mutex, a leaf that is held for some nanoseconds.
//
// # Buffers
//
// None. The last error of a failure is kept until the next change.
package breaker
