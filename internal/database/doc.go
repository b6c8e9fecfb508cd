// Package database is Badger in a process of its own.
//
// Badger maps its tables and logs, and its own goroutines read them. A device
// that cannot read a page of a mapping sends SIGBUS, and Badger calls log.Fatal
// or panics over much else: each ends the process. Nothing in the process can
// prevent that. debug.SetPanicOnFault holds for one goroutine, and flush and
// compaction have theirs. Reading a file before it is mapped proves nothing
// about later: the kernel drops clean pages and reads them again, when a
// compaction comes by, say. Locking them all in memory would hold, at the price
// of a hundredth of the disk tier in DRAM, and would leave log.Fatal. So what
// may end ends alone: the program starts itself once more as the process of the
// database, and what becomes of that is an error here.
//
// # The process
//
// Main of the program calls Main first, which serves in the process that Open
// started. They talk over pairs of sockets, one request and one answer at a
// time on each: one pair for commits, some for what reads. Nothing listens
// anywhere. The process ends with the one that started it, however that ends:
// the kernel kills it (Linux), and it ends when a socket does. It ignores the
// signals that ask for an end, so that a daemon that is told to stop, as its
// whole control group is, can still write. It asks the kernel to be the first
// to go where memory is short. Badger locks its folder, so that a process that
// hangs in the kernel after it was killed keeps the next one out.
//
// It also ends, with what the device said as its last words, over a flush or a
// compaction that its device did not take: Badger would go on, and lose tables
// (compactions says how).
//
// Package databasetest serves in goroutines of a test's own process instead: Process is an
// interface for that, and the ways in which a Server ends are fields.
//
// # Records
//
// What the disk tier writes into the database is laid out here too: [Entry], and an inline
// payload. Every value carries a version byte and an xxHash64 over its key and itself, so that
// a flipped bit, a value that ended up under another key, and a layout written by a newer
// program are told apart and none of them is believed. Payloads have their own checksum, which
// travels inside the entry. Layouts are append-only: a field never changes its meaning, a new
// one raises the version, and this program refuses newer ones than its own. Encoders append to
// the caller's buffer; decoders copy the fields they keep, so the caller may reuse both.
//
// # Frames
//
// A frame is the length of its body (4 bytes, little endian), its kind
// (1 byte), and the body. A commit is any number of parts, which are not
// answered, and the last part, which is. Both sides keep one buffer a pair.
package database
