package cpu

import (
	"context"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/checkpoint"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/manifest"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// notes are what a tier writes down of its entries, for a process after this one.
type notes struct {
	to      *manifest.Manifest // nil: nothing
	passing func(key.Key) bool // nil: none is
	direct  bool
}

// put notes that a sealed block is the payload of an entry.
func (n *notes) put(e ledger.Entry, b arena.Block) {
	if n.passing != nil && n.passing(e.Key) {
		n.to.Clear(b.ID())
		return
	}
	n.to.Put(b.ID(), &manifest.Record{
		Key: e.Key, Parent: e.Parent, Offset: b.Offset(), Size: uint32(b.Len()), Sum: b.Sum(), Word: e.Value.B,
	})
}

// fill notes that a client writes a block, which it may go on with after a kill.
func (n *notes) fill(b arena.Block) {
	if n.direct && !b.Sealed() {
		n.to.Fill(b.ID(), b.Offset(), uint32(b.Len()))
	}
}

// clear strikes out a block whose entry has left the ledger, before it is released.
func (n *notes) clear(b arena.Block) { n.to.Clear(b.ID()) }

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
			n.clear(from)
		}
	}
	return t.ledger.Exchange(ledger.ID(from.Tag()), uint64(from.ID()), uint64(to.ID()), note)
}

// exclude keeps a part of the arena out of use, in this process and in the next.
func (n *notes) exclude(a *arena.Arena, off, size int64) {
	if id, ok := a.Exclude(off, size); ok {
		n.to.Fill(id, off, uint32(size))
	}
}

// sound is how many of the leading refs have the payload that was sealed. Those from the
// first on that has not are let go of, and that one is removed: memory has changed it.
func sound(t *Tier, o ledger.Owner, c ledger.Class, ks []key.Key, refs []tier.Ref) int {
	for i := range refs {
		if refs[i].Block.Clear() {
			continue
		}
		t.wrong.Add(1)
		t.Release(o, c, refs[i:])
		t.remove(ks[i : i+1])
		return i
	}
	return len(refs)
}

// Resume makes the entries of a manifest resident, in an arena that still has the bytes
// and a tier that has nothing, and calls visit for them, in parts. visit keeps nothing.
// What another process was writing stays out of use. A payload is not believed before
// its checksum was compared: by Hold, or by Prove for the rest. What the tiers below have
// is not known: all is dirty if there are any. lost is how many entries had no room, or
// were there twice.
func Resume(t *Tier, left *manifest.Left, below bool, visit func([]tier.Resumed)) (lost int) {
	left.Fills(func(off int64, size uint32) { t.notes.exclude(t.arena, off, int64(size)) })
	return takeUp(t, left.Len(), func(i int) checkpoint.Record {
		r := left.Record(i)
		return checkpoint.Record{
			Key: r.Key, Parent: r.Parent, Offset: r.Offset, Size: r.Size, Sum: r.Sum, Word: r.Word, Dirty: below,
		}
	}, true, visit)
}

// Prove compares the checksums of all payloads that Resume has left in doubt, and removes
// those that are wrong. It returns how many that were, with those that Hold has found.
// The error is that of ctx.
func Prove(ctx context.Context, t *Tier, left *manifest.Left) (wrong uint64, err error) {
	for i := range left.Len() {
		if ctx.Err() != nil {
			return t.wrong.Load(), ctx.Err()
		}
		var refs [1]tier.Ref
		ks := [1]key.Key{left.Record(i).Key}
		if n, _ := t.Hold(ledger.Daemon, ledger.IO, ks[:], refs[:]); n == 1 {
			t.Release(ledger.Daemon, ledger.IO, refs[:])
		}
	}
	return t.wrong.Load(), nil
}
