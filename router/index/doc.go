// Package index says which workers hold which prefixes, so that a router can
// send a request to where its prefix is. Workers are inference engines, each a
// worker id and a data-parallel rank. Their events tell which blocks they hold;
// prompts are asked for by the hashes of their blocks or by their tokens.
//
// It is data structures only: it does no I/O, starts no goroutine, and knows no
// wire format. It never says that a worker has a block that it was not said to
// have, and never a block behind a hole.
//
// # What a block knows
//
// A block stands for its tokens and all tokens before it, as its sequence hash
// does. It has two sets. Its own set says which workers have it, and in which
// media. Its cover says which of them have it and all before it: the own set,
// less those that are not in the parent's cover. With several media a cover has
// a level: the farthest medium that a worker needs for any block up to here.
//
//	  blocks   A ------> B ------> C ------> D        w2 has lost B
//	                               \-------> E
//	own sets   w1 w2 w3  w1 w3     w1 w2 w3  w2        D: w2   E: w3
//	covers     w1 w2 w3  w1 w3     w1 w3     -         D: -    E: w3
//
// Covers only shrink along a chain. So Find looks at a few blocks: where two of
// them have one cover, all between have it, and where they differ it halves. The
// price is paid when a block in the middle goes or comes back: the change of
// cover spreads to the blocks below, as far as it changes theirs. Engines mostly
// evict from the end of chains, where nothing is below.
//
// A block that no worker has stays while blocks stand on it, and goes with the
// last of them.
//
// Of a hybrid model's groups with windows, chunked attention or states, the cover
// has what a worker has, whatever it has before. Find counts the full groups as
// above, and then goes back from their end, block by block, until each worker has
// what all its groups need: it costs a look at each block between.
//
// # Where it lies
//
//	      key                      page of 256 blocks                   sets
//	       | mix                  +-------------------------+     +-------------+
//	+------v----+   +--------+    | key   cover  stamp      |     | w1 w2       |
//	| directory |-->| bucket |--->| own   links of the tree |---->| w1 w3       |
//	| segments  |   | 15 slot|    | 32 bytes a block        |     | w1 w2 w3    |
//	+-----------+   +--------+    +-------------------------+     +-------------+
//	                                  a set of one worker lies in the block
//
// All are pages without Go pointers, so the garbage collector has little to
// look at. Equal sets are kept once, with a count of references: there are few
// among millions of blocks. Names that engines give blocks (aliases) lie beside
// the blocks, 10 bytes each, and have a table of their own.
//
// # Locks
//
// A [Shard] is one model, tenant, salt and LoRA adapter. Its changes are made
// under its lock. Find takes none: keys, covers, slots of the table and words of
// sets are atomic, a cover has a version that changes whenever its set does, and
// places of sets and blocks are used again for their own kind only. A reader that
// sees a version change begins anew. The table never moves an entry; growing
// makes new segments and leaves the old ones to readers that are there.
//
// Index.mu (workers, list of shards) comes before any Shard.mu, and so does
// Index.trimming. Shard locks are never held two at a time.
//
// # Bounds
//
// [Options] bound bytes, workers, shards and blocks of an event. Beyond the byte
// budget the coldest leaves of all shards go: those that were not stored or found
// for the longest time. Each change does its share of that, a millisecond or little
// more. A tree that is mostly empty is packed anew. An empty
// shard takes about 12 KiB, which the budget does not count; MaxShards bounds it.
//
// Not here: groups with blocks of different lengths, blocks with images (their
// tokens are alike, so that callers must leave them out or give them a shard of
// their own), and a shared store that counts for all workers at once: the caller
// stores its blocks for each worker that reaches it.
package index
