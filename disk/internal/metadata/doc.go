// Package metadata keeps the records of a disk tier: where each payload lies, and
// small payloads themselves, in a database that survives kills, damage and a
// device in trouble.
//
// A Store is the database (internal/database, a process of its own) with what it
// takes to trust it: a witness beside it counts its commits and notes its tables
// and logs, attempts count the starts that did not get through it, and what does
// not pass is moved aside. A Store that fails is broken: it is not asked, and Run
// opens it again once its file system takes writes and has room. What the machine
// refuses (environment) is told from damage.
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
// Store.life is held while the database is opened again or closed; use is taken
// under it. Committer.mu is held while a change is made (AddWith, Still), which may
// lock the ledger. The witness's mutex is a leaf; its file, 176 bytes, is written
// under it.
//
// # Buffers
//
// A key or value that is given to a Batch is the database's until the change is
// told of its commit. What a Store reads is a copy, the caller's.
package metadata
