// Package simulate computes offline what a cache of some policy and size would
// have kept of a trace, so that a cache can be sized before it is bought.
//
// # Owns
//
// [Read] takes a trace into memory once; [Run] plays it for every policy and
// capacity asked for, several at a time, and returns a [Row] for each. The
// unit is the block: a capacity is a number of blocks, and every block weighs
// one. The policies are those of package policy, driven through the same
// interface as in the daemon's tiers, and three more that only hindsight or a
// fixed division of the room allow: "s3fifo-static", "belady" and "infinite".
//
// # The two modes
//
// Flat is how published simulators count: when a request arrives, its hit is
// the longest prefix of its blocks that is resident; then every block is
// accessed in order, hit or not, and may evict any other.
//
// Tree is how the daemon evicts: a block goes only when it has no resident
// child and the request at hand does not use it. A request touches the blocks
// that it finds and adds those that it misses, each from the tail, so that the head of a
// prompt is younger than its tail. Where nothing can go, the rest of the
// prompt is not stored. "tenure" always plays so, sees each request whole, and
// may leave the rest of a prompt out that is worth less than what would go.
//
// What clients say of their prompts and sessions (Options.Sessions) is carried out
// in tree mode: blocks of ended prompts go before all that a policy would
// choose.
//
// [Resample] says how much of a number is owed to the choice of sessions.
//
// # Never does
//
// It moves no payload, knows no daemon, and prints nothing.
//
// # Locks and buffers
//
// A Trace does not change once it is read; every run shares it and keeps its
// own state in slices by block number. There is no lock.
package simulate
