package cpu

import (
	"io"

	"github.com/kvstored/kvstored/internal/checkpoint"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Save writes the directory of a tier for a process that goes on with the arena, and
// returns how many entries it has. Nothing else uses the tier any more, and nothing may
// afterwards: see ledger.Unload. Payloads that nothing has proved since Resume are left
// out. What something may still write, such as a device that
// hangs, is marked as not to be used.
func Save(t *Tier, to io.WriterAt) (entries int, err error) {
	learned, err := t.ledger.SavePolicy()
	if err != nil {
		return 0, err
	}
	w, err := checkpoint.NewWriter(to, t.arena.Stats().CapacityBytes, t.ledger.PolicyName())
	if err != nil {
		return 0, err
	}
	var known bitmap
	ledger.Unload(t.ledger, func(e *ledger.Entry) {
		b := t.block(*e)
		known.set(b.ID())
		if b.Doubtful() {
			return // a directory has no doubts: the room is free
		}
		entries++
		w.Add(&checkpoint.Record{
			Key: e.Key, Parent: e.Parent, Offset: b.Offset(), Size: e.Size, Sum: b.Sum(), Word: e.Value.B,
			Hits: e.Hits, Below: uint8(e.Below), Dirty: e.Dirty,
		})
	})
	var voids []checkpoint.Void
	t.arena.Others(known.has, func(off, n int64) { voids = append(voids, checkpoint.Void{Offset: off, Bytes: n}) })
	return entries, w.Close(voids, learned)
}

// Load makes the entries of a directory resident, in an arena that still has the bytes and a
// tier that has nothing, and calls visit for them, in parts. visit keeps
// nothing. lost is how many entries had no room.
func Load(t *Tier, f *checkpoint.File, visit func([]tier.Resumed)) (lost int) {
	for _, v := range f.Voids() {
		t.notes.exclude(t.arena, v.Offset, v.Bytes)
	}
	return takeUp(t, f.Len(), func(i int) checkpoint.Record {
		if ledger.Backwards(f.Policy()) {
			i = f.Len() - 1 - i
		}
		return f.Record(i)
	}, false, visit)
}

// takeUp makes n records resident and calls visit for them, in parts. lost is how many had
// no room, or were there twice: of two records of a chunk, stored again at a kill amid the
// removal of the one before, the later counts.
func takeUp(t *Tier, n int, record func(i int) checkpoint.Record, doubts bool, visit func([]tier.Resumed)) (lost int) {
	part := make([]tier.Resumed, 0, batch)
	for i := range n {
		r := record(i)
		e, ok := resume(t, r, doubts)
		if !ok && t.Has(r.Key) {
			t.remove([]key.Key{r.Key})
			lost++
			e, ok = resume(t, r, doubts)
		}
		if !ok {
			lost++
			continue
		}
		if part = append(part, e); len(part) == batch {
			visit(part)
			part = part[:0]
		}
	}
	visit(part)
	return lost
}

// resume takes up one entry, whose payload has its checksum unless there are doubts;
// false if its place is not free or the ledger has no room.
func resume(t *Tier, r checkpoint.Record, doubts bool) (out tier.Resumed, ok bool) {
	b, ok := t.arena.Place(r.Offset, int(r.Size), r.Sum, doubts)
	if !ok {
		return out, false
	}
	e := ledger.Entry{
		Key: r.Key, Parent: r.Parent, Size: r.Size, Dirty: r.Dirty,
		Value: ledger.Value{A: uint64(b.ID()), B: r.Word},
	}
	id, ok := ledger.Reload(t.ledger, e, r.Hits)
	if !ok {
		b.Release()
		return out, false
	}
	b.SetTag(uint32(id))
	t.notes.put(e, b)
	t.payloadBytes.Add(int64(r.Size))
	return tier.Resumed{Record: tier.HotRecord(e, r.Sum), Below: tier.Set(r.Below), Dirty: r.Dirty, Hits: r.Hits}, true
}

// bitmap is a set of small numbers.
type bitmap []uint64

func (b *bitmap) set(n uint32) {
	for len(*b) <= int(n/64) {
		*b = append(*b, 0)
	}
	(*b)[n/64] |= 1 << (n % 64)
}

func (b *bitmap) has(n uint32) bool { return int(n/64) < len(*b) && (*b)[n/64]&(1<<(n%64)) != 0 }
