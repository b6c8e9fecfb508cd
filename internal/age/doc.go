// Package age knows which chunks of a store have a bound on their age, and when it is
// reached.
//
// # Owns
//
// A Book: the age that each open space allows, and a Stamp for each chunk that has a bound.
// Tiers write the stamp beside the payload and tell the book of stamps that they find, so
// that one book, in memory, answers for all tiers and for chunks of earlier processes.
// A chunk is over once its time has come, whether or not a tier still has it.
//
// # Never does
//
// It removes nothing: its owner asks for chunks that are due. It knows no tier.
//
// # Time
//
// Seconds of the wall clock, since a stamp outlives the process. While the process runs
// a clock that is set back lengthens nothing: what counts is the later of the wall
// clock, and the wall clock at the start plus the time since. A stamp of which the birth
// lies further ahead than [Slack] is over: the clock was set back between two
// processes, and nothing says for how long. A chunk may go up to a second early, as
// births are rounded down.
//
// # Bounds
//
// Some 105 bytes for each chunk with a bound. Stamps of chunks that are in no tier any
// more are dropped by Prune, in rounds, not before [Grace] after they were noted: a
// chunk is stamped shortly before it becomes visible.
//
// # Locks
//
// One mutex, a leaf, held for some hundred chunks. Where nothing has a bound no
// call for a chunk takes it. On a nil Book Of, Over, Each, Found, Ahead, Due, Prune
// and Stats find nothing.
//
// # Buffers
//
// Slices that callers pass in are not kept.
package age
