// Package report writes the results of a demo, a replay or a simulation as one
// HTML page with charts that opens offline: nothing in it is loaded from
// anywhere, and nothing runs in it.
//
// # Owns
//
// The pages, and which chart tells which number.
//
// # Never does
//
// It measures nothing and prints nothing.
//
// # Locks and buffers
//
// None: it keeps no state beyond a call.
package report
