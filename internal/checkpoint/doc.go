// Package checkpoint is the directory of DRAM as one file: what another process
// needs to go on with an arena that it was handed.
//
// # Format
//
// All numbers are little-endian. The order of the records is the order in which the
// entries would go, the first to go first.
//
//	header    128 bytes: magic, version, sizes, policy, checksum
//	records   64 bytes an entry
//	spaces    16 bytes each; a record names its space by number
//	voids     16 bytes each: parts of the arena that are not to be used
//	learned   what the policy has learned, in its own format
//
// The checksum is XXH3-64 of the header, without itself, and of all behind it: of the
// first as it stands in the file, folded with the second.
//
// # Owns
//
// The format and its version. A file that is damaged, cut short or of another version
// is an error that says which; nothing of it is used.
//
// # Never does
//
// It does no I/O of its own, and does not know what a tier or a ledger is. A payload's
// checksum travels with its record; the user of the arena checks payloads.
//
// # Locks and buffers
//
// None. A Writer is used by one goroutine; a File is read by any number. A File keeps
// the bytes that it was opened over.
package checkpoint
