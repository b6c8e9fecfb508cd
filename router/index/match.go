package index

import "slices"

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

// matches appends a Match for each worker: the least of its groups.
func (f *finder) matches(dst []Match, r *registry, exact bool) []Match {
	groups := len(f.shard.config.Groups)
	tokens := int32(f.shard.config.BlockTokens)
	dst = slices.Grow(dst, len(f.all))
	if groups == 1 {
		return f.single(dst, r, exact)
	}
	for i := 0; i < len(f.all); {
		slot := f.all[i].column().slot()
		blocks, first := &f.depths[i], i
		for i++; i < len(f.all) && f.all[i].column().slot() == slot; i++ {
			for m := range blocks {
				blocks[m] = min(blocks[m], f.depths[i][m])
			}
		}
		if i-first < groups || blocks[Shared] == 0 || int(slot) >= len(r.members) || !r.members[slot].live {
			continue
		}
		dst = dst[:len(dst)+1]
		m := &dst[len(dst)-1]
		m.Worker, m.Blocks = r.members[slot].Worker, *blocks
		m.Usable, m.blockTokens = int(blocks[Shared])*int(tokens), tokens
		m.AtLeast = !exact && f.holds(slot)
	}
	return dst
}

// single is matches with one group. dst has room for all.
func (f *finder) single(dst []Match, r *registry, exact bool) []Match {
	tokens := int32(f.shard.config.BlockTokens)
	n, room, depths := len(dst), dst[:cap(dst)], f.depths[:len(f.all)]
	for i, e := range f.all {
		slot, blocks := e.column().slot(), &depths[i]
		if int(slot) >= len(r.members) || blocks[Shared] == 0 {
			continue
		}
		w := &r.members[slot]
		if !w.live {
			continue
		}
		m := &room[n]
		m.Worker, m.Blocks = w.Worker, *blocks
		m.Usable, m.blockTokens = int(blocks[Shared])*int(tokens), tokens
		m.AtLeast = !exact && f.holds(slot)
		n++
	}
	return room[:n]
}

// holds reports whether a worker had all groups where the search ended.
func (f *finder) holds(slot uint32) bool {
	groups := 0
	for _, e := range f.now {
		if e.column().slot() == slot {
			groups++
		}
	}
	return groups == len(f.shard.config.Groups)
}
