// Package tier is the contract every tier fulfils and the Stack that makes
// one store of them: index, lookup, promotion, write-behind and demotion.
//
// It never imports a tier. What it needs of the one in DRAM is Hot.
//
// # Locks
//
// In this order, each held for at most about 100 us and none of them over
// I/O, hashing of payloads or a channel send:
//
//	a hand-over (cpu.Tier.handing) -> each of the following
//	index (Stack.mu)  ->  a tier's ledger, what goes down (Stack.departing)
//	writer (writer.mu) ->  a tier's ledger, what goes down
//	what comes up (Stack.coming) -> the hot tier's ledger
//
// The mutexes of the index, a writer and what comes up are never held
// together; that of what goes down is a leaf. Tiers are the truth about what
// they hold and never call back; the index is brought up to date by
// Stack.settle.
//
// # Buffers
//
// A payload is an arena.Block. Get hands one reference to its caller, Put
// borrows. A Ref is an entry of the hot tier that somebody holds, with one
// reference of its block.
package tier
