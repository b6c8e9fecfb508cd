//go:build race

package directory

// The race detector makes a read of payloads a thousand times slower.
const raced = true
