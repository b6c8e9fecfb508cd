// Package outline makes a tree of all stored prefixes for people: the bytes of each, its
// heat, the time of its last use.
//
// # Owns
//
// A Tree, made in one go from stretches of chunks as the index tells of them, and never
// changed. A prefix is named by the hash of its first chunk behind the last branch.
// Totals of a prefix include all that stands on it.
//
// # Never does
//
// It knows no lock and no tier. Stretches may be of different moments: one
// whose ancestors are missing stands at the top, one that is its own ancestor is dropped.
//
// # Buffers
//
// A Tree has about 150 bytes for each of at most [MostRuns] stretches.
package outline
