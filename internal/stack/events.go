package stack

import (
	"github.com/kvstored/kvstored/internal/events"
	"github.com/kvstored/kvstored/internal/radix"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// journal notes in the log of events what the index learns of the tiers. All of it
// is called with the index's lock held, so that the log has the order of the index.
// A nil journal notes nothing.
type journal struct {
	log  *events.Log
	hot  tier.Hot
	tree *radix.Tree
	was  []uint8 // scratch of before
}

func newJournal(o *Options, tree *radix.Tree) *journal {
	if o.Events == nil {
		return nil
	}
	return &journal{log: o.Events, hot: o.Hot, tree: tree}
}

// at is where the index has k before a change.
func (j *journal) at(k key.Key) tier.Set {
	if j == nil {
		return 0
	}
	at, _ := j.tree.Get(k.Space, k.Hash)
	return tier.Set(at)
}

// before is where the index has the chunks of a space before a change; valid until
// the next call.
func (j *journal) before(space key.SpaceID, hashes []key.Hash) []uint8 {
	if j == nil {
		return nil
	}
	j.was = j.was[:0]
	for _, h := range hashes {
		at, _ := j.tree.Get(space, h)
		j.was = append(j.was, at)
	}
	return j.was
}

// added notes those of chunks from..to of c that p has not had; was is what before
// said of them.
func (j *journal) added(c *key.Chain, from, to int, p tier.Place, was []uint8) {
	if j == nil {
		return
	}
	for i := from; i < to; i++ {
		if !tier.Set(was[i-from]).Has(p) {
			j.log.Note(events.Change{Kind: events.Stored, Place: uint8(p), Tokens: c.Tokens[i], Key: c.Key(i), Parent: c.Parent(i)})
		}
	}
}

// claimed notes a chunk that was put into the index, which had it at was. It may
// stand below another chunk than was claimed.
func (j *journal) claimed(p tier.Place, k key.Key, tokens uint32, was tier.Set) {
	if j == nil || was.Has(p) {
		return
	}
	c := events.Change{Kind: events.Stored, Place: uint8(p), Tokens: tokens, Key: k}
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
		j.log.Note(events.Change{Kind: events.Removed, Place: uint8(p), Key: k})
	}
}

// stored is the change of a chunk of which only the key is at hand. DRAM knows the
// number of its tokens, if it has it too.
func (j *journal) stored(k key.Key, p tier.Place) events.Change {
	c := events.Change{Kind: events.Stored, Place: uint8(p), Key: k}
	c.Parent, _ = j.tree.Parent(k.Space, k.Hash)
	if e, _ := j.hot.Ledger().Find(k); e.Key == k {
		c.Tokens = tier.HotRecord(e, 0).Tokens
	}
	return c
}

// announce notes where the chunks, indexBatch at most, are now.
func (x *index) announce(ks []key.Key) {
	x.lock()
	defer x.mu.Unlock()
	for _, k := range ks {
		x.journal.everywhere(k, x.journal.log.Note)
	}
}

// everywhere calls do for each tier that has k.
func (j *journal) everywhere(k key.Key, do func(events.Change)) {
	for p, at := tier.Place(0), j.at(k); p < tier.Places; p++ {
		if at.Has(p) {
			do(j.stored(k, p))
		}
	}
}

func (x *index) contents(list []events.Change, ks []key.Key) []events.Change {
	x.lock()
	defer x.mu.Unlock()
	for _, k := range ks {
		x.journal.everywhere(k, func(c events.Change) { list = append(list, c) })
	}
	return list
}
