// Package store makes one store of the tiers: index, lookup, promotion, leases and deletion.
//
// It never imports a tier; see package tier for what one is. It owns the index of all known
// chunks (index, groups, groupbits, events), the chunks in flight (promotions), and for each tier
// one level: the tier's roles, its queue of loads, its speed, its counters and its writer. A tier that
// is added is one level more. What leaves DRAM for the tiers below is package writeback's.
//
// # Parts and their files
//
//	Lookups   lookup, family and resumepoints (hybrid models), absence (why not), remotescan
//	Leases    leases
//	Loader    load, speed
//	Filler    fill
//	Remover   delete
//	Planning  plan
//	Recovery  recover
//	Operator  admin, counters, quota, spaces, upload, ages
//
// # Locks
//
// In this order, each held for at most about 100 us and none of them over
// I/O, hashing of payloads or a channel send:
//
//	a hand-over (cpu.Tier.handing) -> each of the following
//	index (index.mu)  ->  a tier's ledger, transit
//	writer (queue.mu) ->  a tier's ledger, transit
//	promotions        ->  the hot tier's ledger
//
// The turn of stores that wait for room (writeback) comes before all of these. It is held
// while victims are written, and nothing that ends a write takes it.
//
// The mutexes of the index, a writer and the promotions are never held together; those of
// transit, a speedometer and boost (an idle load that a client waits for takes the client's turn)
// are leaves. Tiers are the truth about their entries and never call back; the index follows
// them by way of index.Sync.
//
// # Buffers
//
// A payload is an arena.Block. A Ref is an entry of the hot tier that its owner
// holds, with one reference of its block.
package store
