// Package tiertest is the conformance suite of tier.Tier, and what tests of
// tiers and of the store have in common: payloads that follow from their key,
// chains, and a tier in plain memory.
//
// It is for tests only. The caller of [Run] owns the arena and the tier; what
// the suite stores it deletes again, so that at the end the arena holds as
// many blocks as before.
//
// Locks: [Memory] has one mutex, a leaf. Buffers: [NewEntry] returns a block
// with one reference, owned by the caller; Memory copies its payloads.
package tiertest
