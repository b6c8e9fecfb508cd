// Package record is the disk tier's bytes at rest: how an entry and an
// inline payload look in the database.
//
// It owns the key prefixes, the layouts and their versions. Every value
// carries a version byte and an xxHash64 over its key and itself, so that a
// flipped bit, a value that ended up under another key, and a layout written
// by a newer program are told apart and none of them is believed. Payloads
// have their own checksum, which travels inside the entry.
//
// It never does I/O and knows neither files nor the database. It has no locks.
// Encoders append to the caller's buffer; decoders copy the fields they keep, so
// the caller may reuse both. Neither allocates.
//
// Layouts are append-only: a field never changes its meaning, a new one raises
// the version, and this program refuses newer ones than its own.
package record
