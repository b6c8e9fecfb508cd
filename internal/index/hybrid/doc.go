// Package hybrid says what a prefix needs of each group of layers of a hybrid
// model, and finds the longest prefix of which all of that is there.
//
// A model with sliding windows, chunked attention or recurrent layers beside
// full attention has several KV cache groups, each with chunks of its own. A
// prefix of n tokens is of use only if every group has its need at n. The
// conditions of two lengths are independent, so no fixed point is looked for:
// Group.Needs is the definition, and Search goes through 64 lengths at a time,
// the longest first.
//
// It knows neither tiers nor keys: a Source says which chunks are there.
package hybrid
