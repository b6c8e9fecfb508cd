//go:build !race

package radix

const (
	defaultOps   = 1_000_000
	memoryChunks = 1_000_000
	churnRounds  = 6000
)
