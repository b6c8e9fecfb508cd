// Package ledger keeps the books of one bounded tier: which entries are
// resident, who protects them, and which one goes next.
//
// It owns the entries' numbers, their parents and kids within the tier, the
// holds and budgets of every owner, and one policy. It never touches a
// payload: the tier keeps two words of its own with each entry (Value) and
// frees the payload they name before it calls Free.
//
// An entry is filling, then resident, then gone. It is evicted only when it
// is resident, not held, and it has no filling or resident kid. So
// the cache is a set of whole prefixes, and holding a deep chunk keeps
// all its ancestors. A chunk whose parent is absent hangs below a hole,
// which has no bytes and disappears with its last kid.
//
// Where tiers stack on each other (StackOn) the prefixes need be whole only in
// all of them together. What a tier below has (SetBelow) is not protected by
// what stands on it, is not charged for that, and may be evicted under its
// kids: if there is nothing else, in the order in which it was let go of, which
// is from the root on. A tier below that is off, or has lost the chunk since,
// costs hits, as far as the chunk has left this one, and nothing else.
//
// Quotas bound what groups of spaces occupy. The entries under one are, besides
// the policy of all, in a second one of the same kind, from which it evicts
// while it is exceeded. So a victim costs O(1) then too, and the policy of all
// is never made to refuse what other spaces have.
//
// A policy that plans (policy.Planner) is told of whole requests with Planning.Observe,
// which for it is the use of their chunks: touches and new fills are then
// nothing to it. It is asked with Admit before a chunk is stored. It may be
// trained in Train, beside the calls.
//
// MarkCold puts the end of a prompt that its client is done with before all that
// the policy of all would choose. DropBehind does so with what a prompt
// longer than the tier has left behind, from its root on, and also from
// underneath the rest of it.
//
// Options.Entries bounds the number of entries, of any size, and
// with them the memory of the books: Begin refuses one more, as a tier without
// room does, and its owner evicts (FreeEntries, ErrFull).
//
// # Parts
//
// A Ledger is a book and the lock around it. Planning tells its policy of requests
// and trains it, and Tuning changes policy and quotas: each in many lock rounds.
//
// The parts of a book reach down only. The table has the entries: it finds them by
// key, and knows what protects each. The budgets say what each owner holds, and how
// much it may; the policies, in which order the entries of each scope go. Recency is
// what Publish still owes the policies. The order says which of them, or which line,
// names the next victim. The book is where one change concerns more than one of them:
// protection travels toward the root, an entry is filled, held, evicted.
//
// # How a victim is chosen
//
// Evict takes the first that it finds of these:
//
//   - what DropBehind has named, if a tier below has it (first.go)
//   - a claimed leaf, while more than half of the tier is claimed (claim.go)
//   - a leaf that MarkCold has named (first.go)
//   - the leaf that the policy of all names, of the unclaimed ones (policies.go)
//   - instead of such a leaf, if it is dirty and no writer has room for it, and
//     also where there is no leaf: an interior entry that a tier below has (interior.go)
//   - a claimed leaf, or a claimed interior entry
//   - a dirty leaf all the same; EvictSafely rather takes another or none (evict.go)
//
// EvictOwn, and EvictOver safely, ask the policy of a quota that is exceeded, where DropBehind
// and MarkCold count for nothing. The ledger reads no clock: what is older
// follows from the order of the calls.
//
// # Locks
//
// One mutex guards all of that (lock.go), a leaf of the lock order: nothing is called
// under it but the policy, which is plain data. The mutexes of Planning and Tuning are
// taken before it, for a whole training or change. A call takes it once per 4,096
// entries, and every step under it is O(1) for an entry, but for walks toward
// the root, which end where protection does not change: a caller that fills or
// holds a chain chunk by chunk holds its prefix meanwhile, or each chunk walks
// to the root to protect it and again to let it go. Nothing is allocated per
// entry, tables grow by pages and buckets, and the garbage collector finds a
// pointer per 4,096 entries.
//
// # Buffers
//
// Slices that callers pass in are not kept. Nothing here holds payload bytes.
package ledger
