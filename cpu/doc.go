// Package cpu is the DRAM tier: payloads lie in the shared arena, where
// clients read them in place.
//
// # Owns
//
// The pairing of one arena with one ledger: a fill is an entry of the ledger
// and a block of the arena, and both go together. What the manifest says of its entries.
//
// # The manifest
//
// A [Manifest] is the directory of DRAM as it stands at every moment, in a file in
// memory beside the arena. With the descriptors of both the next process goes on with DRAM
// where this one has stopped or was killed, in the same files.
//
// The format is little-endian.
// A page of header: magic, version, size of a record, bytes of the arena, a
// sum of these; the largest id in use; the namespace of process numbers; and, after a clean
// stop alone, the policy whose order the records have and the sum of its tables.
// Then a slot for each connection that has mapped the arena, with its process and how old its
// leases become; room for the tables of the policy; and a record of 96 bytes for each id of a
// block: the chunk that the block is of, where it lies, its checksum, a number that gives the
// order of the records, and last a check of the record. A record whose check is not right is
// none: it was never written, was cleared, or its writer was killed on the way.
//
// It does not look at payloads: a record says what a payload was when it was written, and
// the reader of the arena finds out whether it still is. It keeps an order of use only from
// a clean stop to the next start.
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
// The manifest has one mutex for its slots. The record of an id is written by the owner of
// the block, one call at a time; calls for different ids do not meet. A nil Manifest takes
// every call and does nothing.
//
// # Buffers
//
// The ledger's residency owns one reference of a block. A Ref holds one more for
// as long as it is held, so that bytes under a reader outlive the entry.
package cpu
