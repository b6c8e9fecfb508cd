// Package remote is the tier that many machines share: one object per chunk
// in an S3 store. docs/s3-layout.md says what lies there.
//
// # Owns
//
// The connection to the store, and the knowledge of this process about it: a
// bounded table of keys that were not there a moment ago ([absences]) and a
// Bloom filter of keys that were stored or listed ([bloom]). Chunks known to be
// there are in the index of the store.
//
// # Never does
//
// It never trusts an object: length, key and checksum are compared before
// a block is handed out. It never passes on an error text of the store or of
// the SDK that could name credentials: see [Error]. It does not switch itself
// off when the store is in trouble; tier.WithBreaker does.
//
// # Goroutines
//
// Those of a call, which waits for them: parallel probes.
// Run keeps trying until the store answers, and then lists it if told to.
//
// # Locks
//
// Each small structure has its own mutex, a leaf, held for a few memory
// accesses. Nothing is sent or received under one.
//
// Requests in flight are bounded by semaphores, of its own for each direction:
// see [traffic]. Each direction has connections of its own too: see [client].
//
// # Buffers
//
// Bodies stream from the socket into a block that the caller's Allocator gave,
// and from the caller's block to the socket; nothing is buffered in between. A
// request that is given up may be read by the HTTP client for a moment longer,
// so that a body is detached from its block before Put returns.
package remote
