package store

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// journal notes in the log of events what the index learns of the tiers. All of it
// is called with the index's lock held, so that the log has the order of the index.
// A nil journal notes nothing.
type journal struct {
	log        *index.Log
	hot        tier.Hot
	tree       *index.Tree
	distrusted *stale.Distrusted
}

func newJournal(o *Options, tree *index.Tree) *journal {
	if o.Events == nil {
		return nil
	}
	return &journal{log: o.Events, hot: o.Hot, tree: tree, distrusted: o.Distrusted}
}

// kind is what the log says of a chunk that is there: no lookup finds one of a distrusted space.
func (j *journal) kind(id key.SpaceID) index.ChangeKind {
	if j.distrusted.Has(id) {
		return index.Removed
	}
	return index.Stored
}

// at is where the index has k before a change.
func (j *journal) at(k key.Key) tier.Set {
	if j == nil {
		return 0
	}
	at, _ := j.tree.Get(k.Space, k.Hash)
	return tier.Set(at)
}

// claimed notes a chunk that was put into the index, which had it at was. It may
// stand below another chunk than was claimed.
func (j *journal) claimed(p tier.Place, k key.Key, tokens uint32, was tier.Set) {
	if j == nil || was.Has(p) {
		return
	}
	c := index.Change{Kind: j.kind(k.Space), Place: uint8(p), Tokens: tokens, Key: k}
	c.Parent, _ = j.tree.Parent(k.Space, k.Hash)
	j.log.Note(c)
}

// changed notes that p has come to have k, or has it no more.
func (j *journal) changed(k key.Key, p tier.Place, was, now tier.Set) {
	switch {
	case j == nil || was.Has(p) == now.Has(p):
	case now.Has(p):
		j.log.Note(j.stored(k, p))
	default:
		j.log.Note(index.Change{Kind: index.Removed, Place: uint8(p), Key: k})
	}
}

// stored is the change of a chunk of which only the key is at hand. DRAM knows the
// number of its tokens, if it has it too.
func (j *journal) stored(k key.Key, p tier.Place) index.Change {
	c := index.Change{Kind: j.kind(k.Space), Place: uint8(p), Key: k}
	c.Parent, _ = j.tree.Parent(k.Space, k.Hash)
	if e, _ := j.hot.Ledger().Find(k); e.Key == k {
		c.Tokens = tier.HotRecord(e, 0).Tokens
	}
	return c
}

// contents calls do for each tier that has one of the chunks, indexBatch at most.
func (x *tierIndex) contents(ks []key.Key, do func(index.Change)) {
	x.lock()
	defer x.mu.Unlock()
	for _, k := range ks {
		for p, at := tier.Place(0), x.journal.at(k); p < tier.Places; p++ {
			if at.Has(p) {
				do(x.journal.stored(k, p))
			}
		}
	}
}

// walk is the chunks that some tier is known to have, brought into the order of prompts.
// They are listed in pieces of a few hundred, so that requests get at the index in
// between, and take 48 bytes each until the walk ends. A chunk that comes or goes
// meanwhile may be in it or not.
type walk struct {
	spaces []key.SpaceID
	list   []stop // by space and hash
	child  []int32
	next   []int32 // the next chunk with the same parent
	top    int32   // the first chunk whose parent is not in the list
}

// stop is one chunk of a walk.
type stop struct {
	hash, parent key.Hash
	space        uint32 // its place in spaces
}

// none ends a list of chunks.
const none = -1

// walk lists all chunks, or those of one space.
func (x *tierIndex) walk(ctx context.Context, only *key.SpaceID) (*walk, error) {
	t := &walk{list: make([]stop, 0, x.expected(only))}
	numbers := make(map[key.SpaceID]uint32)
	add := func(e *index.Entry) {
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
func (x *tierIndex) sweep(from uint64, add func(*index.Entry)) (next uint64) {
	x.lock()
	defer x.mu.Unlock()
	return index.SweepAll(x.mu.tree, from, add)
}

// expected is about how many chunks a walk over all finds.
func (x *tierIndex) expected(only *key.SpaceID) int {
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
func (t *walk) order() {
	slices.SortFunc(t.list, func(a, b stop) int { return a.compare(b.space, b.hash) })
	t.child, t.next, t.top = slices.Repeat([]int32{none}, len(t.list)), make([]int32, len(t.list)), none
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
func (t *walk) visit(ctx context.Context, do func([]key.Key) error) error {
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
