package writeback

import (
	"context"
	"errors"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// task is an item that is protected until it is written. Its block is held, or is
// that of a victim, or is in a nearer tier: see refetch.
type task struct {
	item
	ref            tier.Ref
	inNearer       bool     // DRAM has evicted it, a nearer tier has it
	fetched        *Fetched // of one in a nearer tier: ref is its, once it was promoted
	declined       bool     // the tier does not want it
	declinedBefore bool     // nor did it the time before
}

// outcome is how a task ended.
type outcome uint8

const (
	refused outcome = iota // the tier does not have it, and others may
	stored
	putOff // as refused, but it will be offered again
	void   // deleted, or wrong: no tier should have it
)

// perform writes the chunk of a task, or decides not to.
func (w *Writer) perform(ctx context.Context, t *task) outcome {
	if t.declined {
		return w.decline(t)
	}
	if w.to.IsShared() && w.writers.o.Distrusted.Has(t.rec.Key.Space) { // other machines would serve it
		w.count.drop(&t.rec, explain.NotWorth)
		return refused
	}
	if t.inNearer {
		if how, ok := w.refetch(ctx, t); !ok {
			return how
		}
	}
	return w.write(ctx, t)
}

// decline counts a chunk that the tier does not want, once for each that DRAM
// has.
func (w *Writer) decline(t *task) outcome {
	if _, ok := w.record(t); !ok {
		return void // deleted before a worker took it
	}
	if !t.declinedBefore {
		w.count.drop(&t.rec, explain.NotWorth)
	}
	return refused
}

// write stores one chunk below.
func (w *Writer) write(ctx context.Context, t *task) outcome {
	k := t.rec.Key
	if w.queue.begin(ctx, k) != nil {
		w.count.drop(&t.rec, explain.Stopped)
		return refused
	}
	defer w.queue.wrote(k)
	rec, ok := w.record(t)
	if !ok || w.writers.o.Ages.Expired(k) {
		return void
	}
	if w.has(k, rec.Sum) {
		w.clean(t)
		return stored
	}
	err := w.room.store(ctx, tier.Entry{Record: rec, Block: t.ref.Block})
	if w.room.shrunk.Swap(false) {
		w.queue.look(&w.writers.o.Log)
	}
	if err == nil || w.to.Resident != nil { // it may be there all the same
		w.writers.o.Index.Insert(w.to.Place, []tier.Record{rec})
	}
	if err != nil {
		return w.failed(ctx, t, err)
	}
	w.count.written.Add(rec.Size)
	w.writers.o.Rivals.Came(uint8(w.to.Place), k.Space, uint64(rec.Size))
	w.writers.o.EvictLog.Taken(rec.Key)
	w.room.filled()
	w.queue.works()
	if _, ok := w.record(t); !ok { // Delete came by before there was anything to delete
		w.room.takeBack(ctx, k)
		return void
	}
	w.clean(t)
	return stored
}

// failed counts a chunk that could not be written.
func (w *Writer) failed(ctx context.Context, t *task, err error) outcome {
	reason, first := dropReason(err), false
	if !t.retried {
		first = w.count.drop(&t.rec, reason) == 1
	}
	if first && reason == explain.NoRoom {
		w.writers.o.Log.Warn().Err(err).Stringer("tier", w.to.Place).Msg("no room for a chunk, which stays in DRAM only; further ones are counted as dropped: no_space")
	} else {
		w.writers.o.Log.Debug().Err(err).Stringer("tier", w.to.Place).Msg("write behind failed")
	}
	if !errors.Is(err, errChanged) {
		return w.putOff(t, reason)
	}
	w.writers.Count.CorruptDown.Add(1)
	w.writers.DropCorrupt(ctx, t.rec.Key)
	return void
}

// clean notes that the chunk is where it would go first if DRAM evicted it. A
// tier behind that one does not make up for it.
func (w *Writer) clean(t *task) {
	w.atEntry(t, func(id ledger.ID) { w.writers.o.Hot.Ledger().SetDirty(id, false) })
}

// note notes at the entry of a chunk whether its nearest tier was not given it, and of a
// victim whether that did not want it.
func (w *Writer) note(t *task, how outcome) {
	w.atEntry(t, func(id ledger.ID) {
		l := w.writers.o.Hot.Ledger()
		was := l.Get(id).Value
		is := tier.WithDeclined(was, t.declined || tier.Declined(was))
		is = tier.WithDropped(is, how == putOff || how == refused && !t.declined)
		if is != was {
			l.SetValue(id, is)
		}
	})
}

// atEntry calls do with the ID of the entry that DRAM has of a task, if the writer is that
// to the nearest tier. A victim may have come back.
func (w *Writer) atEntry(t *task, do func(ledger.ID)) {
	if w != w.writers.Nearest(t.rec.Key.Space) {
		return
	}
	if t.life == 0 {
		do(t.ref.ID)
	} else if held, ok := w.writers.holdResident(t.rec.Key); ok {
		if held.Block == t.ref.Block {
			do(held.ID)
		}
		w.writers.Unhold(held)
	}
}

// record is the record that a task is to write; false if it was deleted.
func (w *Writer) record(t *task) (tier.Record, bool) {
	if t.life == 0 {
		e, st := w.writers.o.Hot.Ledger().Find(t.rec.Key)
		return tier.HotRecord(e, t.ref.Block.Sum()), st == ledger.Resident && e.ID == t.ref.ID
	}
	return t.rec, w.writers.transit.lives(t.rec.Key, t.life)
}

// end ends a task: its block, its budget and its part in a flush.
func (w *Writer) end(t task, how outcome) {
	switch {
	case t.life > 0:
		if how == refused && w.writers.staying.Load() {
			w.writers.Readmit(t.rec.Key)
		}
		if how == refused {
			w.note(&t, how)
		}
		if how == void || !w.forward(t, how) {
			w.writers.endTransit(t)
		}
	case t.inNearer:
		if t.fetched != nil {
			w.letGo(t.fetched)
		}
	default:
		w.note(&t, how)
		w.writers.o.Hot.Release(ledger.Daemon, ledger.Unwritten, []tier.Ref{t.ref})
		w.writers.Filled() // it may go now, and while it was held perhaps nothing could
	}
	w.queue.end(&t, how)
}

// letGo ends the hold of a chunk that was promoted to be written. Where no client has used
// it meanwhile it is the first to go, so that a long upload evicts nothing else.
func (w *Writer) letGo(p *Fetched) {
	l := w.writers.o.Hot.Ledger()
	e := l.Get(p.Ref.ID)
	p.Release()
	if p.From != tier.CPU && e.Hits == 0 {
		hs := []key.Hash{e.Key.Hash}
		l.DropBehind(e.Key.Space, hs)
		l.MarkCold(e.Key.Space, hs) // where the policy plans
	}
}

// refetch promotes a chunk again that DRAM has evicted before it was written
// here: the tier in between has it, so that nothing but a read is lost. If that
// fails the task is over.
func (w *Writer) refetch(ctx context.Context, t *task) (how outcome, ok bool) {
	k, nearer := t.rec.Key, w.nearer
	switch has := w.writers.o.Index.Where(k).Has(w.to.Place); {
	case has:
		return refused, false
	case w.to.Off():
		if !t.retried {
			w.count.drop(&t.rec, explain.WhileOff)
		}
		return w.putOff(t, explain.WhileOff), false
	case w.writers.transit.isWith(k, &nearer.queue):
		nearer.queue.awaitTasks(ctx, k)
		return refused, false // it is forwarded from there
	}
	p, err := w.writers.o.Fetch(ctx, t.rec, w.nearer.to.Place)
	if err == nil {
		t.fetched, t.ref = &p, p.Ref
		return refused, true
	}
	reason := dropReason(err)
	if errors.Is(err, tier.ErrNotFound) {
		if w.Defers() || nearer.queue.awaitTasks(ctx, k) {
			return refused, false // it is forwarded: over a full tier, as all that DRAM evicts
		}
		reason = explain.Gone
	}
	w.count.drop(&t.rec, reason)
	w.writers.o.Log.Debug().Err(err).Stringer("tier", w.to.Place).Msg("a chunk to be written could not be promoted")
	return refused, false
}
