// Package manifest is the directory of DRAM as it stands at every moment, in a file in
// memory beside the arena. With the descriptors of both the next process goes on with DRAM
// where this one has stopped or was killed, in the same files.
//
// # Format
//
// Little-endian. A page of header: magic, version, size of a record, bytes of the arena, a
// sum of these; the largest id in use; the namespace of process numbers; and, after a clean
// stop alone, the policy whose order the records have and the sum of its tables.
// Then a slot for each connection that has mapped the arena, with its process and how old its
// leases become; room for the tables of the policy; and a record of 96 bytes for each id of a
// block: the chunk that the block is of, where it lies, its checksum, a number that gives the
// order of the records, and last a check of the record. A record whose check is not right is
// none: it was never written, was cleared, or its writer was killed on the way.
//
// # Owns
//
// The file, its format, and its version. Pages that nothing has reached take no memory.
//
// # Never does
//
// It does not look at payloads: a record says what a payload was when it was written, and
// the reader of the arena finds out whether it still is. It keeps an order of use only from
// a clean stop to the next start.
//
// # Locks and buffers
//
// One mutex for the slots. The record of an id is written by the owner of the block, one
// call at a time; calls for different ids do not meet. A nil Manifest takes every call and
// does nothing.
package manifest
