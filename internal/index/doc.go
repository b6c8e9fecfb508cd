// Package index knows which chunks there are, in which tiers, and how far a prompt is usable.
//
// # Owns
//
// A [Tree], which has the structure (which chunk follows which) and one byte of location bits
// per chunk; [ResumePoints], the lengths at which prompts of hybrid models are usable, and
// which stored chunks no usable length needs; a [Search], the longest prefix of which a
// hybrid model has all that it needs. A [Log] of what became resident in, or left, each tier:
// the source of KV events.
//
// # Never does
//
// It does no I/O, keeps no payload, knows no tier and does not know what a location bit means.
//
// # Shape of the tree
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
// to descend into and answers for single keys. It grows a bucket at a time, so
// there is no rehash of everything (base.Index). Hashes come from engines and may be plain sequence
// numbers; the table mixes all of their bits with a seed of its own.
//
// A chunk that is in no tier stays as a placeholder (location 0) while
// something hangs below it, and goes when nothing does. A chunk whose parent
// chain is not known up to the root is detached: Match does not see it until
// the missing ancestors are linked.
//
// # Memory of the tree
//
// Everything is in pages without Go pointers, so the garbage collector has a
// few hundred objects to mark for ten million chunks. A chunk takes 25 bytes
// for its slot and 4 in the table, which keeps its largest size; a run
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
// # Resume points
//
// A resume point is a length of a prompt that was asked for as one: an end, or a place where
// prompts part, whose windows and states were to be stored, or one that was found usable.
// Its pieces are the windows and states that it needs, and the last chunk of each full
// group. It is live while all of them are stored, in any tier, and before that from
// its declaration until a piece goes. A piece that no live point needs is dead. What lies
// before the last full chunk is not looked at: tiers lose a prompt from its end on.
//
// It is counted, never searched: a piece that comes or goes changes a number of each point
// that has it, and a point that comes to life or dies changes a number of each of its pieces.
// So is each piece's share of a point paid once for each time that the point dies.
//
// Each call counts a batch of pieces at most; the others have their turn in the next calls,
// so that a chunk which very many points have makes none of them long. Until then pieces
// count as needed, or not, as before.
//
// ResumePoints keep all live points, and the last maxDead others, of maxWaits pieces in all.
// One takes 20 bytes for each of its pieces, and a piece some 70; their tables do not shrink.
// Points for which there is no room are not counted: their chunks go as the policies say.
//
// # Hybrid models
//
// A model with sliding windows, chunked attention or recurrent layers beside
// full attention has several KV cache groups, each with chunks of its own. A
// prefix of n tokens is of use only if every group has its need at n. The
// conditions of two lengths are independent, so no fixed point is looked for:
// Group.Needs is the definition, and Search goes through 64 lengths at a time,
// the longest first.
//
// # Locks and buffers
//
// None but those of the log: the owner serialises all calls. Slices handed in are only read during
// the call, except the result slice of Match, which is only written.
//
// # The log
//
//	who changes the index, under its lock -- Note --> the last batches -- Read --> readers
//	                                         numbers  bounded             each at its own pace
//
// Note never waits: the oldest batch is forgotten. A reader that is slower than the log
// loses its place: Read tells it so, with the place where it goes on. There is no other
// loss, and one way out: the reader takes the number that comes next, then walks through
// all that is there, and goes on with the log from that number.
//
// The log's mutex is a leaf, held for as long as an append or the copy of a batch takes.
package index
