// Package directory says where the chunks of DRAM lie, in memory that clients read: one
// that maps it, and the arena, copies a chunk without asking the daemon.
//
// # How a chunk is read
//
// Nothing keeps a chunk where it is while a client copies it. So each slot of the directory
// has a number that changes with what the slot says, and the slot of a chunk is cleared
// before the memory of the chunk can be used for another. A client finds the slot, copies,
// and looks at the number once more: if it is the same, the bytes are those of the chunk.
// That is the sequence lock of the Linux kernel, with the payload outside of it. The
// checksum in the slot lets a client find the same out from the bytes alone.
//
// # Format
//
// Little-endian, in words of 8 bytes, each of which is written and read as one. A header of
// one page: magic, version and size of a slot, number of slots, bytes of the arena, and
// whether the directory still holds (1; any other value: never again). Then sets of 8 slots
// of 64 bytes: number, hash, space, place and size, checksum, zero. The number is odd while
// the slot is being written. A key has its slot in one set, which a product of its words
// names. A set that is full loses one for each that comes: the directory is a cache, and
// other chunks are asked of the daemon.
//
// # Owns
//
// The format, and how it is written and read. The memory is the caller's.
//
// # Never does
//
// It does not look at payloads, knows nothing of tiers, and keeps nothing alive.
//
// # Locks
//
// A set has one of 64 mutexes for those who write it. Readers take none, and never wait: a
// slot that is being written is not found.
package directory
