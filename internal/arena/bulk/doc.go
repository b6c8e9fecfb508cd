// Package bulk copies payloads and computes their checksum, XXH3-64, in one
// pass over memory.
//
// The copy of the Go runtime changes to stores past the caches at 1 MiB. That
// is fast on some processors and slow on others, and a hash behind it reads
// everything from memory again. So this package copies in pieces, chooses the
// kind of store by the processor, and hashes each byte from the register from which it
// is stored. [Running] does the same for a buffer that fills up in several
// steps, and gives the value of one call over the whole.
//
// It needs AVX2 for that. Elsewhere the same functions copy and then hash, with
// the same results.
//
// It keeps no state but the processor's abilities, asked when the process
// started, has no lock, starts no goroutine, and keeps no buffer: memory is the
// caller's.
package bulk
