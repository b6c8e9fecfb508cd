// Package broken counts and logs what the daemon finds wrong in its own books: a call that
// only a fault of ours can make. The caller refuses the call, changes nothing, and puts aside
// what it was about. Tests and builds with the tag invariants panic instead.
//
// It owns one count and one log for the process. Report may be called under any lock: it
// logs in a goroutine of its own, the 1st, 2nd, 4th, 8th time and so on.
package broken
