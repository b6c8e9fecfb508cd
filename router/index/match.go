package index

// Match is what one worker has of a prompt.
type Match struct {
	Worker Worker
	// Usable is how many tokens the worker need not compute, from any
	// medium: Tokens(Shared).
	Usable int
	// Blocks are leading blocks, for each medium: the longest prefix of which the
	// worker has all that its groups need, each in that medium or a nearer one.
	// Of full groups that is all blocks, so Blocks[GPU] need no load, and the
	// block after them, where there is one, does.
	Blocks [Media]int32
	// AtLeast says that the worker may have more: with [FindOptions].EarlyExit
	// it was not counted on.
	AtLeast bool

	blockTokens int32
}

// Tokens are the tokens of Blocks.
func (m Match) Tokens(medium Medium) int { return int(m.Blocks[medium]) * int(m.blockTokens) }

// FindOptions say how to find.
type FindOptions struct {
	// EarlyExit ends the search when only one worker is left: it is the one
	// with most, though not by how much. Where a group is not full, it has no
	// effect.
	EarlyExit bool
}
