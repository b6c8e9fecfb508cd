package cpu

import (
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// notes are what a tier writes down of its entries, for a process after this one.
type notes struct {
	to      *Manifest          // nil: nothing
	withTTL func(key.Key) bool // nil: none is
}

func (n *notes) hasTTL(k key.Key) bool { return n.withTTL != nil && n.withTTL(k) }

// put notes that a sealed block is the payload of an entry.
func (n *notes) put(e ledger.Entry, b arena.Block) {
	if n.hasTTL(e.Key) {
		n.leave(b)
		return
	}
	r := recordOf(e, b)
	n.to.Put(b.ID(), &r)
}

// recordOf is what a manifest says of an entry, but for what a clean stop adds.
func recordOf(e ledger.Entry, b arena.Block) Record {
	return Record{
		Key: e.Key, Parent: e.Parent, Offset: b.Offset(), Size: uint32(b.Len()), Sum: b.Sum(), Word: e.Value.B,
	}
}

// leave notes that a block is no entry's, or none that is to outlive the process, but may
// still be read. The arena strikes it out when it is free. A block that an entry has lost is
// another's by now, and so is its record; the lost one is never sealed.
func (n *notes) leave(b arena.Block) {
	if n.to != nil && b.Sealed() {
		n.to.Use(b.ID(), b.Offset(), uint32(b.Len()))
	}
}

// publish notes fills that are about to be published.
func (n *notes) publish(t *Tier, ids []ledger.ID) {
	if n.to == nil {
		return
	}
	for _, id := range ids {
		e := t.ledger.Get(id)
		n.put(e, t.block(e))
	}
}

// exchange has an entry name the copy of a block. What a manifest says changes under the
// ledger's lock: the entry may have left by now, and its id be another one's.
func (n *notes) exchange(t *Tier, from, to arena.Block) bool {
	var note func(ledger.Entry)
	if n.to != nil {
		note = func(e ledger.Entry) {
			n.put(e, to)
			n.leave(from)
		}
	}
	return t.ledger.Exchange(ledger.ID(from.Tag()), uint64(from.ID()), uint64(to.ID()), note)
}

// sound is how many of the leading refs have the payload that was sealed. Those from the
// first on that has not are let go of, and that one is removed: memory has changed it. One
// whose block was freed is put aside.
func sound(t *Tier, o ledger.Owner, c ledger.Class, ks []key.Key, refs []tier.Ref) int {
	for i := range refs {
		if refs[i].Block.Clear() {
			continue
		}
		if id := refs[i].ID; !refs[i].Block.Sealed() {
			t.Release(o, c, refs[i:])
			t.ledger.PutAside(id, "has no payload of its own")
			return i
		}
		t.wrong.Add(1)
		t.Release(o, c, refs[i:])
		t.remove(ks[i : i+1])
		return i
	}
	return len(refs)
}
