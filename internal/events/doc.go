// Package events is the log of what became resident in, or left, each tier of a
// daemon: the source of KV events.
//
//	index, under its lock -- Note --> pending -- Run --> batches -- Read --> readers
//	                        appends   bounded   numbers   the last N    each at its own pace
//
// Note never waits: it appends, to a slice that Run exchanges for an empty one.
// What does not fit is dropped, and the log begins anew. It then says Cleared, and
// the owner's walk notes again all that is there. A reader that is slower than
// the log loses its place: Read tells it so, with the place where it goes on.
//
// # Never does
//
// It knows no tier, socket or encoding, and no tokens of prompts.
//
// # Locks
//
// Log.pending.mu and Log.batches.mu are leaves, never held together, and held
// for as long as an append or a copy takes. Note is called with the lock of the
// index held.
package events
