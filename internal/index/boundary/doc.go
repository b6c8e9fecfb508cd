// Package boundary knows at which lengths the prompts of hybrid models are usable, and
// which stored chunks no usable length needs.
//
// A boundary is a length of a prompt that was asked for as one: an end, or a place where
// prompts part, whose windows and states were to be stored, or one that was found usable.
// Its pieces are the windows and states that it needs, and the last chunk of each full
// group. It is live while all of them are stored, in any tier, and before that from
// its declaration until a piece goes. A piece that no live boundary needs is dead. What lies before the last full chunk is not looked at: tiers
// lose a prompt from its end on.
//
// It is counted, never searched: a piece that comes or goes changes a number of each boundary
// that has it, and a boundary that comes to life or dies changes a number of each of its pieces.
// So is each piece's share of a boundary paid once for each time that the boundary dies.
//
// Each call counts a batch of pieces at most; the others have their turn in the next calls,
// so that a chunk which very many boundaries have makes none of them long. Until then pieces
// count as needed, or not, as before.
//
// A Table keeps all live boundaries, and the last maxDead others, of maxWaits pieces in all.
// One takes 20 bytes for each of its pieces, and a piece some 70; a table does not shrink. Boundaries for which there
// is no room are not counted: their chunks go as the policies say.
//
// The owner serialises all calls. A Table does no I/O, and knows no tier.
package boundary
