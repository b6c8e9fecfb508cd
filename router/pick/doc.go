// Package pick says which worker a request should go to, in seconds: the expected
// time to the first token.
//
//	queue + load + compute
//
//	queue     work that was given to the worker before and is not done ([Loads])
//	load      bringing the part of the prefix that lies below the GPU up to it
//	compute   the rest of the prompt, by the rate of prefill
//
// How deep to load is part of the answer: a prefix on a slow disk counts only as
// far as loading is faster than computing it again ([Expect]). Of the workers the
// fastest is chosen, ties at random; with a temperature in seconds the others have
// a chance too ([Choose]).
//
// It is functions and plain data: no I/O, no clock, no goroutine. Times and chance
// come from the caller, so that equal calls have equal answers.
//
// # Locks
//
// None. A [Loads] is its caller's to lock.
package pick
