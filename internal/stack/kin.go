package stack

import (
	"github.com/kvstored/kvstored/internal/radix"
	"github.com/kvstored/kvstored/key"
)

// kin is the spaces whose chunks have the hashes of those of another space: the groups of
// a hybrid model beside its first full one, of the same rank and with chunks of the same
// length. A chunk of that one has a mark for each of them that has the chunk of the same
// hash in some tier. So a search for a few windows and states looks at bytes that lie
// beside those of the full group, and looks up a chunk only where there may be one.
//
// The index's lock guards it.
type kin struct {
	of   map[key.SpaceID]*kinship // of the others
	with map[key.SpaceID][]*kinship
}

// kinship is one space and the one that has its marks.
type kinship struct {
	space, full key.SpaceID
	mark        uint8
	left        []key.Hash // chunks from before they were joined, that are still to be marked
}

const (
	maxKin  = 8       // marks of a chunk
	maxKins = 1 << 14 // kinships
)

// join makes space a kin of full, unless it is one, and marks at most indexBatch of the
// chunks that it has had before. It returns the mark, once all of them have it; 0 where that is
// not so yet, or there are too many.
func (n *kin) join(tree *radix.Tree, full, space key.SpaceID) (mark uint8) {
	k := n.of[space]
	if k == nil {
		if k = n.add(full, space); k == nil {
			return 0
		}
		tree.Walk(space, func(hash, _ key.Hash, _ int, at radix.Loc) bool {
			if at != 0 {
				k.left = append(k.left, hash)
			}
			return true
		})
	}
	if k.full != full {
		return 0
	}
	for range min(len(k.left), indexBatch) {
		hash := k.left[len(k.left)-1]
		k.left = k.left[:len(k.left)-1]
		if at, _ := tree.Get(space, hash); at != 0 {
			radix.Mark(tree, full, hash, k.mark, 0)
		}
	}
	if len(k.left) > 0 {
		return 0
	}
	k.left = nil
	return k.mark
}

// add makes a kinship, with a mark that no other of full has.
func (n *kin) add(full, space key.SpaceID) *kinship {
	if len(n.with[full]) >= maxKin || len(n.of) >= maxKins || n.of[full] != nil || len(n.with[space]) > 0 {
		return nil
	}
	if n.of == nil {
		n.of, n.with = make(map[key.SpaceID]*kinship), make(map[key.SpaceID][]*kinship)
	}
	k := &kinship{space: space, full: full, mark: 1 << len(n.with[full])}
	n.of[space], n.with[full] = k, append(n.with[full], k)
	return k
}

// changed follows up on a chunk that some tier has now, or none.
func (n *kin) changed(tree *radix.Tree, k key.Key, here bool) {
	if len(n.of) == 0 {
		return
	}
	if own := n.of[k.Space]; own != nil {
		set, clear := uint8(0), own.mark
		if here {
			set, clear = clear, set
		}
		radix.Mark(tree, own.full, k.Hash, set, clear)
		return
	}
	for _, other := range n.with[k.Space] {
		if at, _ := tree.Get(other.space, k.Hash); here && at != 0 {
			radix.Mark(tree, k.Space, k.Hash, other.mark, 0)
		}
	}
}

// mark is the mark that a chunk of full has where space has the one of the same hash; 0 if
// there is none.
func (x *index) mark(full, space key.SpaceID) uint8 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.kin.join(x.mu.tree, full, space)
}
