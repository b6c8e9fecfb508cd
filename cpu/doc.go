// Package cpu is the DRAM tier: payloads lie in the shared arena, where
// clients read them in place.
//
// # Owns
//
// The pairing of one arena with one ledger: a fill is an entry of the ledger
// and a block of the arena, and both go together. What the manifest says of its entries.
//
// # Never does
//
// It does no I/O, knows no index, and never calls the tiers below: a caller that
// asks for room passes along a function, which gets the victims and decides
// what becomes of them.
//
// # Locks
//
// The ledger's and the arena's own mutexes, never one inside the other; and
// around the ledger's, Tier.deleting, which keeps a deletion from taking a block
// away between its reader's hold and its reference, and Tier.handing, which is
// held while a victim is handed over.
//
// # Buffers
//
// The ledger's residency owns one reference of a block. A Ref holds one more for
// as long as it is held, so that bytes under a reader outlive the entry.
package cpu
