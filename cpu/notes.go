package cpu

import (
	"context"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/checkpoint"
	"github.com/kvstored/kvstored/internal/directory"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/manifest"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// notes are what a tier writes down of its entries: in a manifest for a process after this
// one, in a directory for clients, which read payloads without asking.
//
// A slot of the directory names the sealed block of a resident entry, or of one that is
// published next, whose payload has its checksum, and which has no bound on its age. So
// it is put before the entry can be evicted, and cleared before the last reference of the
// block can go: after the entry has left the ledger, and before victim and remove let go of
// the residency's reference. A move puts the new place under the ledger's lock. An entry
// in doubt gets its slot from the reader that proves it.
type notes struct {
	to        *manifest.Manifest   // nil: nothing
	directory *directory.Directory // nil: nothing
	passing   func(key.Key) bool   // nil: none is
	direct    bool
}

func (n *notes) none() bool { return n.to == nil && n.directory == nil }

func (n *notes) isPassing(k key.Key) bool { return n.passing != nil && n.passing(k) }

// put notes that a sealed block is the payload of an entry.
func (n *notes) put(e ledger.Entry, b arena.Block) {
	if n.isPassing(e.Key) {
		n.to.Clear(b.ID())
		return
	}
	n.to.Put(b.ID(), &manifest.Record{
		Key: e.Key, Parent: e.Parent, Offset: b.Offset(), Size: uint32(b.Len()), Sum: b.Sum(), Word: e.Value.B,
	})
	if !b.Doubtful() {
		n.show(e.Key, b)
	}
}

// show puts a proved payload into the directory, whose entry cannot leave the ledger now.
func (n *notes) show(k key.Key, b arena.Block) {
	n.directory.Put(k, b.Offset(), uint32(b.Len()), b.Sum())
	if n.isPassing(k) { // the bound came meanwhile, and what it cleared was not there yet
		n.directory.Clear(k, b.Offset())
	}
}

// prove shows the payload of a hold that was in doubt. The entry of a hold is not evicted or
// moved; where it was removed, its key may have another block by now.
func (n *notes) prove(t *Tier, k key.Key, r tier.Ref) {
	t.deleting.RLock()
	defer t.deleting.RUnlock()
	if e, st := t.ledger.Find(k); st == ledger.Resident && e.ID == r.ID {
		n.show(k, r.Block)
	}
}

// fill notes that a client writes a block, which it may go on with after a kill.
func (n *notes) fill(b arena.Block) {
	if n.direct && !b.Sealed() {
		n.to.Fill(b.ID(), b.Offset(), uint32(b.Len()))
	}
}

// clear strikes out a block whose entry has left the ledger, before it is released.
func (n *notes) clear(k key.Key, b arena.Block) {
	n.to.Clear(b.ID())
	n.directory.Clear(k, b.Offset())
}

// publish notes fills that are about to be published.
func (n *notes) publish(t *Tier, ids []ledger.ID) {
	if n.none() {
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
	if !n.none() {
		note = func(e ledger.Entry) {
			n.put(e, to)
			n.clear(e.Key, from)
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
		doubtful := refs[i].Block.Doubtful()
		if refs[i].Block.Clear() {
			if doubtful {
				t.notes.prove(t, ks[i], refs[i])
			}
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
