//go:build race

package simulate

// The race detector costs an order of magnitude, and a row of results is one
// goroutine's: the largest caches add nothing.
const raced = true
