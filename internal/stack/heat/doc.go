// Package heat remembers how often prompts were asked for lately, by where in the tree
// of chunks they ended.
//
// # Owns
//
// A table of fixed size: 40 bytes for each end of a prompt, without pointers. A request
// is noted once, at the last chunk that it found. How hot a shorter prefix is follows:
// the sum over all ends that stand on it. An end has a score, which halves every
// [HalfLife], and the time when it was noted last. Of a full bucket the end that was
// noted the longest ago goes.
//
// # Never does
//
// The table is advice: no tier evicts or keeps a chunk because of it. It keeps no token.
//
// # Locks
//
// One mutex for each of 16 parts, a leaf, held for one bucket.
package heat
