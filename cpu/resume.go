package cpu

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Leave writes into the manifest, at a clean stop, what a kill would lose: the order in
// which the entries would go, their uses, the tiers below that have them, and the tables of
// a policy that learns. Nothing else uses the tier any more, and nothing may afterwards but
// Close: see ledger.Unload.
func Leave(t *Tier) error {
	learned, err := t.ledger.Planning().Save()
	if err != nil {
		return fmt.Errorf("cpu: what the policy has learned: %w", err)
	}
	ledger.Unload(t.ledger, func(e *ledger.Entry) {
		if b := t.block(*e); b.Sealed() && !t.notes.hasTTL(e.Key) {
			r := recordOf(*e, b)
			r.Hits, r.Below, r.Dirty = e.Hits, uint8(e.Below), e.Dirty
			t.notes.to.Put(b.ID(), &r)
		}
	})
	return t.notes.to.Stop(t.ledger.PolicyName(), learned)
}

// Resume makes the entries of a manifest resident, in an arena that still has the bytes
// and a tier that has nothing, and calls visit for them, in parts. visit keeps nothing. A
// payload is not believed before its checksum was compared: by Hold, or by Prove, which
// takes keys. below says that there are tiers below: without a clean stop their
// contents are not known, and all is dirty. lost is how many entries had no room, or were there
// twice. Nothing that was in use is used for anything else until Reuse.
func Resume(t *Tier, left *Left, below bool, visit func([]tier.Resumed)) (keys []key.Key, lost int) {
	t.guard.on.Store(true)
	t.arena.Reclaim(left.Largest(), left.Has)
	left.Loose(func(id uint32, off int64, size uint32) {
		if b, ok := t.arena.Place(id, off, int(size), 0); ok {
			t.guard.blocks = append(t.guard.blocks, b)
		}
	})
	part := make([]tier.Resumed, 0, batch)
	for i := range left.Len() {
		if ledger.Backwards(left.Policy) {
			i = left.Len() - 1 - i
		}
		id, r := left.Record(i)
		r.Dirty = r.Dirty || below && !left.Stopped
		e, ok := resume(t, id, &r)
		if !ok {
			lost++
			continue
		}
		keys = append(keys, r.Key)
		if part = append(part, e); len(part) == batch {
			visit(part)
			part = part[:0]
		}
	}
	visit(part)
	return keys, lost
}

// resume takes up one entry; false if its place is not free or the ledger has no room. Of
// two records of a chunk, stored again at a kill amid the removal of the one before, the
// later counts.
func resume(t *Tier, id uint32, r *Record) (out tier.Resumed, ok bool) {
	b, ok := t.arena.Place(id, r.Offset, int(r.Size), r.Sum)
	if !ok {
		t.notes.to.Clear(id)
		return out, false
	}
	e := ledger.Entry{
		Key: r.Key, Parent: r.Parent, Size: r.Size, Dirty: r.Dirty,
		Value: ledger.Value{A: uint64(b.ID()), B: r.Word},
	}
	entry, ok := ledger.Reload(t.ledger, e, r.Hits)
	if !ok && t.Has(r.Key) {
		t.remove([]key.Key{r.Key})
		entry, ok = ledger.Reload(t.ledger, e, r.Hits)
	}
	if !ok {
		t.notes.leave(b)
		t.letGo(b)
		return out, false
	}
	b.SetTag(uint32(entry))
	t.payloadBytes.Add(int64(r.Size))
	return tier.Resumed{Record: tier.HotRecord(e, r.Sum), Below: tier.Set(r.Below), Dirty: r.Dirty, Hits: r.Hits}, true
}

// Prove compares the checksums of the payloads that Resume has left unverified, and removes
// those that are wrong. It returns how many that were, with those that Hold has found.
// The error is that of ctx.
func Prove(ctx context.Context, t *Tier, keys []key.Key) (wrong uint64, err error) {
	for i := range keys {
		if ctx.Err() != nil {
			return t.wrong.Load(), ctx.Err()
		}
		var refs [1]tier.Ref
		if n, _ := t.Hold(ledger.Daemon, ledger.IO, keys[i:i+1], refs[:]); n == 1 {
			t.Release(ledger.Daemon, ledger.IO, refs[:])
		}
	}
	return t.wrong.Load(), nil
}

// guard keeps memory that an earlier process had in use from being used for anything else:
// its clients may still read it. While it is on nothing is evicted or moved, and deleted
// chunks keep their memory. So fills get free memory, or nothing.
type guard struct {
	on     atomic.Bool
	mu     sync.Mutex
	blocks []arena.Block // of what is no entry's any more, each with a reference
}

// letGo gives back the reference that an entry had of its block.
func (t *Tier) letGo(b arena.Block) {
	if t.guard.on.Load() {
		t.guard.mu.Lock()
		defer t.guard.mu.Unlock()
		if t.guard.on.Load() {
			t.guard.blocks = append(t.guard.blocks, b)
			return
		}
	}
	b.Release()
}

// end gives back what the guard has.
func (g *guard) end() {
	g.mu.Lock()
	g.on.Store(false)
	blocks := g.blocks
	g.blocks = nil
	g.mu.Unlock()
	for _, b := range blocks {
		b.Release()
	}
}

// Reuse ends what Resume has begun: no client of an earlier process reads DRAM any more.
func Reuse(t *Tier) {
	t.guard.end()
	t.ledger.Wake()
}
