package store

import (
	"slices"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/key"
)

// groupBits is the spaces whose chunks have the hashes of those of another space: the groups of
// a hybrid model beside its first full one, of the same rank and with chunks of the same
// length. A chunk of that one has a mark for each of them that has the chunk of the same
// hash in some tier. So a search for a few windows and states looks at bytes that lie
// beside those of the full group, and looks up a chunk only where there may be one.
//
// The index's lock guards it.
type groupBits struct {
	of   map[key.SpaceID]*groupBit // of the others
	with map[key.SpaceID][]*groupBit
}

// groupBit is one space and the one that has its marks.
type groupBit struct {
	space, full key.SpaceID
	mark        uint8
	// from is where the sweep for the chunks from before they were joined goes on; swept
	// says that it has ended.
	from  uint64
	swept bool
}

const (
	maxGroupBits = 8       // marks of a chunk
	maxGroups    = 1 << 14 // spaces with a mark, in all
	// sweepBatch is how many chunks of the index a sweep looks at under one hold of its lock,
	// and sweepRounds how often each request that wants the marks has it do that.
	sweepBatch  = 2 * indexBatch
	sweepRounds = 8
)

// join gives space a mark of full, unless it has one, and goes on with its sweep. It returns
// the mark, once all chunks of space have it, and whether there is more to sweep; no mark
// where that is not so yet, or there are too many.
func (n *groupBits) join(tree *index.Tree, full, space key.SpaceID) (mark uint8, more bool) {
	k := n.of[space]
	if k == nil && index.Has(tree, full) { // else nothing would ever end it
		k = n.add(tree, full, space)
	}
	if k == nil || k.full != full {
		return 0, false
	}
	if !k.swept {
		k.from = index.Sweep(tree, space, k.from, sweepBatch, func(hash key.Hash, at index.Loc) {
			if at != 0 {
				index.Mark(tree, full, hash, k.mark, 0)
			}
		})
		if k.swept = k.from == 0; !k.swept {
			return 0, true
		}
	}
	return k.mark, false
}

// add gives a space a mark that no other of full has. Spaces without chunks give
// theirs up for it.
func (n *groupBits) add(tree *index.Tree, full, space key.SpaceID) *groupBit {
	if len(n.of) >= maxGroups || n.of[full] != nil || len(n.with[space]) > 0 {
		return nil
	}
	taken := uint8(0)
	for _, other := range n.with[full] {
		taken |= other.mark
	}
	if taken == 1<<maxGroupBits-1 {
		for _, other := range slices.Clone(n.with[full]) {
			if !index.Has(tree, other.space) {
				n.leave(other)
				taken &^= other.mark
			}
		}
	}
	if taken == 1<<maxGroupBits-1 {
		return nil
	}
	if n.of == nil {
		n.of, n.with = make(map[key.SpaceID]*groupBit), make(map[key.SpaceID][]*groupBit)
	}
	k := &groupBit{space: space, full: full, mark: ^taken & (taken + 1)}
	n.of[space], n.with[full] = k, append(n.with[full], k)
	return k
}

// leave takes the mark of a space back, of which no chunk has a mark any more.
func (n *groupBits) leave(k *groupBit) {
	delete(n.of, k.space)
	if n.with[k.full] = slices.DeleteFunc(n.with[k.full], func(other *groupBit) bool { return other == k }); len(n.with[k.full]) == 0 {
		delete(n.with, k.full)
	}
}

// changed follows up on a chunk that some tier has now, or none. With the last chunk of
// one of the two spaces the mark is free again.
func (n *groupBits) changed(tree *index.Tree, k key.Key, here bool) {
	if len(n.of) == 0 {
		return
	}
	if own := n.of[k.Space]; own != nil {
		set, clear := uint8(0), own.mark
		if here {
			set, clear = clear, set
		}
		if index.Mark(tree, own.full, k.Hash, set, clear); !here && !index.Has(tree, k.Space) {
			n.leave(own)
		}
		return
	}
	switch others := n.with[k.Space]; {
	case len(others) == 0:
	case here:
		for _, other := range others {
			if at, _ := tree.Get(other.space, k.Hash); at != 0 {
				index.Mark(tree, k.Space, k.Hash, other.mark, 0)
			}
		}
	case !index.Has(tree, k.Space): // else its marks go with the chunk, or stay true
		for _, other := range slices.Clone(others) {
			n.leave(other)
		}
	}
}

// mark is the mark that a chunk of full has where space has the one of the same hash; 0 if
// there is none.
func (x *tierIndex) mark(full, space key.SpaceID) (mark uint8) {
	for more, round := true, 0; more && round < sweepRounds; round++ {
		mark, more = x.join(full, space)
	}
	return mark
}

func (x *tierIndex) join(full, space key.SpaceID) (mark uint8, more bool) {
	x.lock()
	defer x.mu.Unlock()
	return x.mu.bits.join(x.mu.tree, full, space)
}
