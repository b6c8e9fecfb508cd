// Package rivals counts which spaces' chunks went from a store while which others came,
// minute by minute of the last hour: who evicts whom.
//
// # Owns
//
// A Table: of each minute and tier the bytes that came, and the chunks that no tier has any
// more, by space; of at most [mostSpaces] spaces, the others as one. What went in a minute is
// shared among those that came in it, by their bytes.
//
// # Never does
//
// It is advice for people, and decides nothing. It knows no key, and no payload.
//
// # Locks
//
// One mutex, a leaf, held for one number; a copy is what all is read from.
package rivals
