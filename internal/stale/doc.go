// Package stale knows which stored chunks no longer count: those whose TTL has run out,
// and those of spaces that their engine distrusts.
//
// # Owns
//
// A [Book]: the TTL of each open space, and an Expiry for each chunk that has a TTL.
// Tiers write the expiry beside the payload and tell the book of expiries that they find, so
// that one book, in memory, answers for all tiers and for chunks of earlier processes.
// A chunk has expired once its time has come, whether or not a tier still has it.
//
// [Distrusted]: the spaces whose chunks are misses, since an engine has computed some of them
// anew, and got other values; each with the user that said so and the time, 64 of one user at
// most. The disk tier keeps the list in a file, and adds that each time that it opens.
//
// # Never does
//
// It removes nothing: the book's owner asks for chunks that are due, package store answers
// misses, package server asks for rights. It knows no tier.
//
// # Time
//
// Seconds of the wall clock, since an expiry outlives the process. While the process runs
// a clock that is set back lengthens nothing: what counts is the later of the wall
// clock, and the wall clock at the start plus the time since. An expiry of which the birth
// lies further ahead than [Slack] has expired: the clock was set back between two
// processes, and nothing says for how long. A chunk may go up to a second early, as
// births are rounded down.
//
// # Bounds
//
// Some 105 bytes for each chunk with a TTL. Expiries of chunks that are in no tier any
// more are dropped by Prune, in rounds, not before [Grace] after they were noted: a
// chunk is stamped shortly before it becomes visible.
//
// # Locks
//
// One mutex in a Book, a leaf, held for some hundred chunks. Where nothing has a TTL no
// call for a chunk takes it. On a nil Book Of, Over, Each, Found, Ahead, Due, Prune
// and Stats find nothing. One mutex in Distrusted, not held over the file, which one
// goroutine writes at a time; readers take none.
//
// # Buffers
//
// Slices that callers pass in are not kept.
package stale
