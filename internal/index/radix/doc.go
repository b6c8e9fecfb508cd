// Package radix is the compressed prefix tree of all chunks known in any
// tier, over all spaces.
//
// It owns structure (which chunk follows which) and one byte of location
// bits per chunk. It does no I/O, keeps no payload, and does not know what a
// location bit means.
//
// # Shape
//
// A run is a stretch of one chain without a branch, at most 1,024 chunks
// long, so that no step moves more than that. Its hashes lie side by side in
// slots; runs form a tree (parent, first child, siblings). A match compares
// them side by side instead of looking each chunk up. This is a radix tree
// (Morrison, "PATRICIA", J. ACM 15(4), 1968) whose edge labels are sequences of
// hashes.
//
// Which chunk follows which may be only what an engine claims, and wrong: Claim
// takes the first parent of a chunk for the true one, so that there is always a
// forest. No answer about a single chunk depends on its place in it.
//
// A seeded hash table leads from (space, hash) to a slot. It finds the child
// to descend into and answers for single keys. It grows a segment at a time
// (Fagin et al., "Extendible Hashing", ACM TODS 4(3), 1979), so there is no
// rehash of everything. Hashes come from engines and may be plain sequence
// numbers; the table mixes all of their bits with a seed of its own.
//
// A chunk that is in no tier stays as a placeholder (location 0) while
// something hangs below it, and goes when nothing does. A chunk whose parent
// chain is not known up to the root is detached: Match does not see it until
// the missing ancestors are linked.
//
// # Memory
//
// Everything is in pages without Go pointers, so the garbage collector has a
// few hundred objects to mark for ten million chunks. A chunk takes 21 bytes
// for its slot and 6 to 12 in the table, which keeps its largest size; a run
// takes 32, and headers no longer used wait for new runs. Slots of removed
// chunks join free neighbours and are used again; when more than a twelfth is
// free, runs move together a few at a time and empty pages go back to the
// collector. Chains of 64 to 256 chunks take 28 to 38 bytes a chunk; inserted
// chunk by chunk in random order up to 46, because there were many short runs
// on the way.
//
// # Marks
//
// A known chunk may have marks, eight bits of which only the owner knows the meaning
// (Mark, Match). They go with the chunk. A page has a column for them, one byte a
// slot, from the first mark in it on.
//
// # Locks and buffers
//
// None: the owner serialises all calls. Slices handed in are only read during
// the call, except the result slice of Match, which is only written.
package radix
