// Package base has the few small things that any package may stand on.
//
// A [Signal] wakes all goroutines that wait for a change; Poke wakes one, and Sleep and Await let one
// wait within a context. Queued tells who has made a context's load that it is in line.
//
// [Broken] counts and logs what the daemon finds wrong in its own books: a call that only a
// fault of ours can make. The caller refuses the call, changes nothing, and puts aside what
// it was about. Tests and builds with the tag invariants panic instead. There is one count
// and one log for the process. Broken may be called under any lock: it logs in a goroutine
// of its own, the 1st, 2nd, 4th, 8th time and so on.
//
// [Glob] matches the names of models with the patterns of rules: * is any run of characters,
// slashes included, and ? any one. There is no escape. Case counts.
//
// [Delete] deletes from maps so that they give memory back: a map of Go's keeps the room of
// all entries that it ever had.
//
// [Quiet] says when a log is to tell of what comes again and again.
//
// A [Table] remembers values by keys within a bound, the last ones written.
//
// [Pages] and a [Pool] are records by number that never move, and an [Index] finds them by
// hash: none of them stalls as millions of records come, and the garbage collector sees one
// pointer for 4,096. They are for one goroutine at a time.
//
// But for a Table and a Quiet the package holds no lock while it calls, and it has no buffer. What it has of the process is the
// count and the log of Broken.
package base
