// Package disk is the tier on one local disk or several: bounded, faster than
// recomputing, and whole after any crash.
//
// It owns the directories of one tier. Payloads lie in segment files, whose
// blocks are preallocated, in extents aligned to 4 KiB, and travel by direct
// I/O straight between those and the blocks of the arena. One Badger record an
// entry says where a payload lies and what its checksum is; payloads up to
// InlineMax lie in Badger too. Memory holds the books of internal/ledger and
// one internal/arena allocator a segment. Eviction frees an extent and
// deletes a record; nothing is ever rewritten.
//
// It never serves a byte that does not match the checksum in its record,
// never lets its files grow past the capacity, and never evicts on its own:
// Put answers ErrNoSpace and Trim returns the evicted keys, so that the index
// above follows.
//
// # Rooms
//
// internal/folders claims the folders (sets, markers, locks), replaces small files whole
// and measures free space, internal/blockio moves payloads (queue, transfers, files, health
// of a path), and internal/metadata keeps the records (store, committer, witness). This
// package has the segments, the database's budget, and the tier. Tier has
// the calls of the contract, which go to its instance: one opening of the folders. Of that
// opening, recovery, survey, writing (a Put), reclaim, headroom (for segments), budget,
// tombWriter (headers of free extents), syncRun and scrub are parts.
//
// # Several paths
//
// The paths of a tier and its database are a set: each has a marker with the
// set's id and, from the second on, its index, which is also in the upper bits
// of its segments' numbers. Beside the database a list tells which paths the
// set has. A path of another set is refused, and so is a path whose database
// is elsewhere. One that the list names and that has no marker is missing, as
// when its disk is not mounted: nothing is written there, and its entries, and
// no others, are forgotten. So the path of a replaced disk has to get another
// name. Each path has a queue and workers of its own; extents go to all in
// proportion to their free room. MinFreeBytes, the space left to others, counts
// for each file system.
//
// A path whose device fails five times in a row, or hangs, is left alone,
// reads and writes each by itself: puts go to the other paths, a Get of its
// entries fails with tier.ErrOff, and one transfer at a time probes it after
// 1 s, 2 s, up to 30 s. The entries stay in the books meanwhile. All that is no
// trouble of the tier; that begins with the last path that works, or with the
// database, which all depend on.
//
// # The order of things
//
// Put: extent, header and payload to the device, record to Badger, then visible.
// Delete and Trim: out of the ledger, deletion to Badger, tombstone over the
// header, then the extent is free, once its last reader has left. Both survive a
// kill at any moment without an fsync: the commits of Badger lie in the page
// cache. A power failure may lose or reorder any of it; then a record whose
// extent was reused fails its checksum, and of two that claim the same bytes the
// one with the higher sequence number is kept. Numbers are given when an extent
// is, and start above all earlier ones with each process (epoch, in the marker).
//
// Sync makes all of that survive a power failure. A segment that could not be
// synced is unverified: the entries written to it since its last good sync are
// dropped by the next Sync, and a Put that was under way fails (syncState).
//
// # Headers
//
// A header (internal/database) is the record once more, in front of the payload,
// so that a database that is lost can be made anew (survey). It is authenticated
// with the set's secret and for its place, and it speaks for the free run behind
// its extent: an extent is always the front of a run, so older headers there are
// covered by it, and no payload can pass for a header. Where the database was
// not lost, but the process not closed, survey frees what headers say and no
// record does. The witness tells a database that has lost commits, or tables from its
// manifest, from one that has not. Where it cannot tell, since its file is gone
// too, no header is freed on the database's word: one without a record is adopted.
// A rebuild compares both ways: a record that a younger header contradicts is dropped,
// and a header that is damaged written anew. An empty file kvstored.rebuild beside the
// database orders one of the next opening.
//
// # Damage, and trouble
//
// A database that Badger refuses is moved aside, and so is one over which its process
// (internal/database) has ended three times in a row. What the machine refuses (files,
// rights, memory, room), and a device that fails (SIGBUS), is no damage: the tier says so,
// with what to do, and everything stays as it is. What Badger says of a file that it cannot
// read is not always what the device said (of a manifest, that it is none), so before
// anything counts as damage all files are read once more.
//
// When the process ends, a commit fails, or the process has not answered for eight I/O
// timeouts and is killed, the database is broken: nothing asks it, calls fail, and the tier
// is lost. So it is when its folder has gone, or is another one now. A lost tier, and one
// whose start is in trouble, is off, with the reason. Run opens it anew, as a start does,
// after pauses of up to half a minute. IsTrouble tells errors that a later start may not
// meet from troubles that only an operator can mend: another process on the folders, a foreign
// set, a newer format. A folder that has gone must come back with its marker: an empty mount
// point is not filled. The new instance gets the policy with its learned state, and the
// quotas of the one before (handOver); the entries are recovered again.
//
// # Who works
//
// Run owns all goroutines: of each path a few workers that take pieces of
// transfers in the order of submission (device), one that groups changes to
// the database (committer), one for maintenance, and one that watches over the
// database. I/O that may hang with the device runs in a worker, or in a goroutine
// that the end does not wait for, so every call ends with its context, and with an
// error once the device has ended no piece for the I/O timeout. A transfer that its
// caller has given up goes on to its end by itself, and only then lets go of memory
// and extent.
//
// # Locks
//
// The committer's, then segments.mu, scan.mu or fills, then the ledger's, then
// none. Those of blockio and of the store, uses and deleting are leaves. No I/O,
// hashing or channel send that can block happens under any of them. A key leaves
// the ledger under the committer's, so that its deletion is queued before a later
// Put of it.
//
// # Buffers
//
// Put borrows the caller's block and Get returns one that the caller owns.
// While the device owns a transfer it holds one more reference, so that the
// memory under a request in the kernel is never used for something else.
package disk
