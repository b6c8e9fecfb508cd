// Package writeback writes what DRAM has to the tiers below: behind the commits, and ahead of
// the evictions.
//
// # Owns
//
// A [Writer] for each tier below DRAM: workers, and the parts that they work with, which know
// no writer. The queue has the chunks to write (backlog.go has the states drawn); the rule says
// when, the policy of the tier whether; the room is the tier's; the syncs take turns.
// [Writers] is all of them, and the chunks in transit: those that DRAM has evicted and no tier
// below has yet. It is what DRAM calls with its victims, and decides who of the stores that
// wait for room is next.
//
// # Never does
//
// It imports no tier, looks up no prompt and decides no residency: each tier's ledger does.
// It knows the index as the interface [Index], and promotions as the function Options.Fetch.
//
// # Locks
//
// A queue's mutex is held around calls of the ledgers and of transit, never the other way
// round, and never around a call of Index, Guard or Fetch, nor over I/O. Those of transit and
// of a budget are leaves; a rule's, and that of what a tier has evicted, are held around a look
// at the tier's ledger. The place of stores that wait for admission comes before all of these; it
// is held while victims are written, and nothing that ends a write takes it.
//
// # Buffers
//
// A chunk in transit has the reference of its victim, which the write task owns until the
// write has ended. Of a chunk that DRAM has, the task holds the entry.
package writeback
