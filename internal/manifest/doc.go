// Package manifest is the directory of DRAM as it stands at every moment, in a file in
// memory beside the arena. With the descriptors of both another process goes on with
// DRAM after this one was killed.
//
// # Format
//
// Little-endian. A header of one page: magic, version, size of a record, bytes of the
// arena, and the largest id in use. Then a record of 96 bytes for each id of a block:
// what the block is of, where it lies, its checksum, a number that counts the records
// written, and last a check of the record. A record whose check is not right is none:
// it was never written, was cleared, or its writer was killed on the way.
//
// # Owns
//
// The file, its format, and its version. Pages that no id has reached take no memory.
//
// # Never does
//
// It does not look at payloads: a record says what a payload was when it was written, and
// the reader of the arena finds out whether it still is. It keeps no order of use.
//
// # Locks and buffers
//
// None. The record of an id is written by the owner of the block, one call at a time;
// calls for different ids do not meet. A nil Manifest takes every call and does nothing.
package manifest
