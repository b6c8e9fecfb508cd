// Package tier is the contract that every tier fulfils, and the breaker, which
// decorates any of them and times its calls.
//
// It never imports a tier, and knows nothing of the store that is made of
// them, which is package stack. What that needs of the tier in DRAM is Hot.
// Beyond Tier itself a tier has roles, each an interface of roles.go.
//
// # Locks
//
// The mutex of a breaker is a leaf, and no lock is held over a call of a tier.
// Tiers are the truth about their entries and never call back.
//
// # Buffers
//
// A payload is an arena.Block. Get hands one reference to its caller, Put
// borrows. A Ref is an entry of the hot tier that its owner holds, with one
// reference of its block.
package tier
