// Package arena owns the memory that payloads live in: one shared mapping, cut
// into reference-counted blocks, that clients map too, so that payload bytes
// never cross the socket.
//
// # Owns
//
// The arena's memfd and its seals, the mapping, how much of it is populated, the state
// of every block, and the clients' staging windows.
//
// Beside it stand the three things that arena and clients or files share: an [Allocator] of
// ranges, for the memory and for the disk tier's extent files; copies of payloads with their
// checksum, XXH3-64, in one pass over memory ([CopySum], [RunningSum]); mappings in huge pages
// ([MapHuge]).
//
// # Never does
//
// It knows no keys, tiers or protocol, and never evicts: Alloc answers ErrFull,
// Compact moves blocks if their owner lets it, and Freed tells when to try again.
//
// # Copies
//
// The copy of the Go runtime changes to stores past the caches at 1 MiB. That is fast on some
// processors and slow on others, and a hash behind it reads everything from memory again. So
// this package copies in pieces, chooses the kind of store by the processor, and hashes each
// byte from the register from which it is stored. RunningSum does the same for a buffer that
// fills up in several steps, and gives the value of one call over the whole. It needs AVX2 for
// that. Elsewhere the same functions copy and then hash, with the same results.
//
// # Huge pages
//
// A file in huge pages is mapped by them only if the mapping begins at a multiple of their
// size. Elsewhere each page of 4 KiB is mapped by itself when it is first read, which takes as
// long as copying it or longer: 3 to 10 us for each 64 KiB.
//
// # Buffers
//
// Alloc returns a block with one reference, owned by the caller. A holder that
// keeps a block beyond a call takes a reference of its own with Retain; every
// reference is given back with exactly one Release, and the last one frees the
// memory. The slices of Bytes and Padded are good as long as a reference is
// held. A block is written by its one owner until it is sealed, and never after.
//
// # What a client can do
//
// A descriptor leaves the daemon only with F_SEAL_SHRINK, F_SEAL_GROW and
// F_SEAL_SEAL set: a client that truncated the file would otherwise end the
// daemon with SIGBUS. Unless it is to be kept for a successor, the arena also carries
// F_SEAL_FUTURE_WRITE: no client can map it writable, or punch holes into it, under any
// user id, while the daemon's own mapping, made before the seal, stays writable, for
// direct I/O too. Clients are handed a descriptor that only reads; they write into
// staging windows, from which the daemon copies.
//
// # Locks
//
// One mutex in Arena guards the extent allocator and the spare ids. It is held
// for about a microsecond at most, and longer only at the end of a Compact,
// which frees all moved blocks at once; never while payload bytes are touched.
// Block state is read without it. An Allocator has none: it belongs to its owner, who
// serialises all calls. Copies keep no buffer: memory is the caller's.
package arena
