// Package departed remembers which chunks have left a store, and why, so that a
// request that misses one can be told.
//
// # Owns
//
// A table of fixed size: 24 bytes for each chunk, without pointers, so that the
// garbage collector does not look into it. It is a cache of buckets. An entry has 64
// bits of a keyed hash of the chunk's key, why, from which tier and when the chunk
// left, and how many bytes that tier had evicted by then: the bytes evicted since are
// how much larger the tier would have had to be. Of a full bucket the entry that was noted
// first goes.
//
// # Never does
//
// The log is advice. A chunk that it does not know may have left long ago, and one that
// it knows may be back: the caller asks for chunks that are missing. It keeps no
// payload, no token and no key that could be read back.
//
// # Locks
//
// One mutex, a leaf, held for one bucket. The sums of evicted bytes are atomic.
package departed
