// Package bridge publishes the events of a daemon over ZeroMQ, in the form in which vLLM
// publishes its own.
//
//	daemon's socket -- events --> Bridge --> events.Log --> publish.Publisher --> subscribers
//	                <- snapshot - Contents <--------------------- replay, snapshot
//
// The numbers are the bridge's own, since a daemon begins anew with each start: what the
// daemon has begun anew is Cleared and told again under the numbers that follow. A bridge
// that begins anew begins at 0, which subscribers know by.
//
// It owns one log, bounded by its batches. It reads from the daemon no faster than the
// log is numbered, so that a flood waits in the daemon, which is bounded as well.
//
// # Never does
//
// It keeps no picture of its own: a snapshot is asked of the daemon, on a connection of
// its own. It tells of the spaces that its user may read, and of no tokens.
//
// # Locks
//
// Bridge.mu guards the spaces and is a leaf.
package bridge
