// Package raced says to tests whether the race detector watches them.
//
// It costs an order of magnitude, and a thousand times where payloads are read, and takes
// several times the memory of what it watches: tests of one goroutine do less beside it, and
// bounds of memory do not hold.
package raced
