package stack

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/kvstored/kvstored/internal/radix"
	"github.com/kvstored/kvstored/key"
)

// tour is the chunks that some tier is known to have, brought into the order of prompts.
// They are listed in pieces of a few hundred, so that requests get at the index in
// between, and take 48 bytes each until the tour ends. A chunk that comes or goes
// meanwhile may be in it or not.
type tour struct {
	spaces []key.SpaceID
	list   []stop // by space and hash
	child  []int32
	next   []int32 // the next chunk with the same parent
	top    int32   // the first chunk whose parent is not in the list
}

// stop is one chunk of a tour.
type stop struct {
	hash, parent key.Hash
	space        uint32 // its place in spaces
}

// none ends a list of chunks.
const none = -1

// tour lists all chunks, or those of one space.
func (x *index) tour(ctx context.Context, only *key.SpaceID) (*tour, error) {
	t := &tour{list: make([]stop, 0, x.expected(only))}
	numbers := make(map[key.SpaceID]uint32)
	add := func(e *radix.Entry) {
		if only != nil && *only != e.Space {
			return
		}
		n, known := numbers[e.Space]
		if !known {
			n = uint32(len(t.spaces))
			numbers[e.Space], t.spaces = n, append(t.spaces, e.Space)
		}
		t.list = append(t.list, stop{e.Hash, e.Parent, n})
	}
	for next := x.sweep(0, add); next != 0; next = x.sweep(next, add) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	t.order()
	return t, ctx.Err()
}

// sweep is one piece.
func (x *index) sweep(from uint64, add func(*radix.Entry)) (next uint64) {
	x.lock()
	defer x.mu.Unlock()
	return radix.SweepAll(x.mu.tree, from, add)
}

// expected is about how many chunks a tour of all finds.
func (x *index) expected(only *key.SpaceID) int {
	if only != nil {
		return 0
	}
	t, _ := x.stats()
	return t.Chunks + t.Chunks/64
}

func (s *stop) compare(space uint32, hash key.Hash) int {
	return cmp.Or(cmp.Compare(s.space, space), bytes.Compare(s.hash[:], hash[:]))
}

// order finds which chunk stands on which.
func (t *tour) order() {
	slices.SortFunc(t.list, func(a, b stop) int { return a.compare(b.space, b.hash) })
	t.child, t.next, t.top = make([]int32, len(t.list)), make([]int32, len(t.list)), none
	for i := range t.child {
		t.child[i] = none
	}
	for i := range t.list {
		s, first := &t.list[i], &t.top
		p, there := slices.BinarySearchFunc(t.list, s, func(a stop, s *stop) int { return a.compare(s.space, s.parent) })
		if there {
			first = &t.child[p]
		}
		t.next[i], *first = *first, int32(i)
	}
}

// visit calls do for the keys, indexBatch at a time, a chunk before those that stand on
// it. The slice is valid until do returns.
func (t *tour) visit(ctx context.Context, do func([]key.Key) error) error {
	ks := make([]key.Key, 0, indexBatch)
	var later []int32 // to go on with at the end of a chain
	for at := t.top; at != none; {
		s := &t.list[at]
		ks = append(ks, key.Key{Space: t.spaces[s.space], Hash: s.hash})
		if t.next[at] != none {
			later = append(later, t.next[at])
		}
		if at = t.child[at]; at == none && len(later) > 0 {
			at, later = later[len(later)-1], later[:len(later)-1]
		}
		if len(ks) < indexBatch && at != none {
			continue
		}
		if err := cmp.Or(do(ks), ctx.Err()); err != nil {
			return err
		}
		ks = ks[:0]
	}
	return nil
}
