// Package measure is what benchmarks share: kvstored as a process of its own, as users run
// it, prompts that no other shares a chunk with, the ways in which this machine can copy,
// and what becomes of the samples. No other code may import it.
//
// Locks: none; a channel tells the end of a process. Buffers: none.
package measure
