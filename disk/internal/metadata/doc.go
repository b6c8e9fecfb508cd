// Package metadata keeps the records of a disk tier: where each payload lies, and
// small payloads themselves, in a database that survives kills, damage and a
// device in trouble.
//
// A Store is the database (internal/database, a process of its own) with two files that say
// whether to trust it: a witness beside it counts its commits and notes its tables
// and logs, and a second one the starts that did not get through it. A database that does
// not pass is moved aside. A Store that fails is broken: it is not asked, Run ends,
// and its owner closes it and opens another. What the machine refuses (environment)
// is told from damage.
//
// A Committer groups changes into commits, in the order in which they were added;
// a Change writes to the Batch of its commit, and is told how that ended. Its
// Budget says how much may be written.
//
// It does not know the ledger, segments or headers, and reads no payload that
// lies in a segment. It never decides which entry goes; it repairs no record, and
// removes no database: the last damaged one is kept for a person to look at.
//
// # Locks
//
// Committer.mu is held while a change is made (AddWith, Still), which may lock the
// ledger. Store.use and the witness's mutex are leaves; the witness's file, 176 bytes,
// is written under the latter.
//
// # Buffers
//
// A Batch keeps nothing that it is given. What a Store reads is a copy, the caller's.
package metadata
