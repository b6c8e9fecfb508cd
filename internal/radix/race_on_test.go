//go:build race

package radix

// The race detector costs an order of magnitude.
const (
	defaultOps   = 40_000
	memoryChunks = 70_000
	churnRounds  = 2500
)
