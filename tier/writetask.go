package tier

import (
	"context"
	"errors"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// writeTask is one chunk that is protected until it is written.
type writeTask struct {
	rec    Record // of an entry of DRAM without its checksum
	ref    Ref
	vain   bool   // the tier does not want it
	again  bool   // nor did it the time before
	below  bool   // DRAM has evicted it, a nearer tier has it: see raise
	missed bool   // offered again: that it was dropped is counted
	failed uint8  // how often the tier failed it
	victim uint64 // the life of a departure: only the block is left; 0 = an entry of DRAM
	gen    uint64
}

// outcome is how a task ended.
type outcome uint8

const (
	refused outcome = iota // the tier does not have it, and others may
	stored
	missed // as refused, but it will be offered again
	moot   // deleted, or wrong: nobody should have it
)

// refuse counts a chunk that the tier does not want, once for each that DRAM
// has.
func (w *writer) refuse(t *writeTask) outcome {
	if _, ok := w.record(*t); !ok {
		return moot // deleted before anybody took it
	}
	if !t.again {
		w.count.drop(DropNotWorth, t.rec.Size)
	}
	return refused
}

// write stores one chunk below.
func (w *writer) write(ctx context.Context, t *writeTask) outcome {
	if !w.alone(ctx, t.rec.Key) {
		w.count.drop(DropStopped, t.rec.Size)
		return refused
	}
	defer w.done(t.rec.Key)
	rec, ok := w.record(*t)
	if !ok {
		return moot
	}
	if w.has(rec.Key, rec.Sum) {
		w.clean(*t)
		return stored
	}
	err := errBudget
	if w.budget.take(rec.Size) {
		if err = w.put(ctx, Entry{Record: rec, Block: t.ref.Block}); err != nil {
			w.budget.giveBack(rec.Size)
		}
	}
	if err != nil {
		if _, bounded := w.to.(Resident); bounded {
			w.stack.attach(ctx, w.place, []Record{rec}) // it may be there all the same
		}
		return w.failed(ctx, t, err)
	}
	w.stack.attach(ctx, w.place, []Record{rec})
	w.count.add(&w.count.written, rec.Size)
	w.filled()
	w.works()
	if _, ok := w.record(*t); !ok { // Delete came by before there was anything to delete
		w.takeBack(ctx, rec.Key)
		return moot
	}
	w.clean(*t)
	return stored
}

// failed counts a chunk that could not be written.
func (w *writer) failed(ctx context.Context, t *writeTask, err error) outcome {
	reason, first := dropReason(err), false
	if !t.missed {
		first = w.count.drop(reason, t.rec.Size) == 1
	}
	if first && reason == DropNoSpace {
		w.stack.log.Warn().Err(err).Stringer("tier", w.place).Msg("no room for a chunk, which stays in DRAM only; further ones are counted as dropped: no_space")
	} else {
		w.stack.log.Debug().Err(err).Stringer("tier", w.place).Msg("write behind failed")
	}
	if !errors.Is(err, errChanged) {
		return w.again(t, reason)
	}
	w.stack.count.corruptDown.Add(1)
	w.stack.dropCorrupt(ctx, t.rec.Key)
	return moot
}

// clean notes that the chunk is where it would go first if DRAM evicted it. A
// tier behind that one does not make up for it.
func (w *writer) clean(t writeTask) {
	switch {
	case w != w.stack.nearest(t.rec.Key.Space):
	case t.victim == 0:
		w.stack.hot.Ledger().SetDirty(t.ref.ID, false)
	default:
		w.stack.cleanAgain(t.rec.Key, t.ref.Block)
	}
}

// cleanAgain is clean for a victim that has come back to DRAM.
func (s *Stack) cleanAgain(k key.Key, b arena.Block) {
	var refs [1]Ref
	ks := [1]key.Key{k}
	if n, _ := s.hot.Hold(ledger.Daemon, ledger.IO, ks[:], refs[:]); n == 0 {
		return
	}
	if refs[0].Block == b {
		s.hot.Ledger().SetDirty(refs[0].ID, false)
	}
	s.hot.Release(ledger.Daemon, ledger.IO, refs[:])
}

// record is what is to be written of a task; false if it was deleted.
func (w *writer) record(t writeTask) (Record, bool) {
	if t.victim == 0 {
		e, st := w.stack.hot.Ledger().Find(t.rec.Key)
		return HotRecord(e, t.ref.Block.Sum()), st == ledger.Resident && e.ID == t.ref.ID
	}
	return t.rec, w.stack.departing.lives(t.rec.Key, t.victim)
}

// takeBack deletes below what was deleted while it was being written.
func (w *writer) takeBack(ctx context.Context, k key.Key) {
	if err := w.to.Delete(ctx, []key.Key{k}); err != nil {
		w.stack.log.Error().Err(err).Stringer("tier", w.place).Msg("a chunk that was deleted while it was written stays; delete it again")
		return
	}
	w.stack.forget(w.place, k)
}

// letGo ends a task: its block, its budget and its part in a flush.
func (w *writer) letGo(t writeTask, how outcome) {
	switch {
	case t.victim > 0:
		if how == moot || !w.passOn(t, how) {
			w.stack.bury(t)
		}
	case t.below:
		if t.ref.Valid() {
			w.stack.discardLoaded(loaded{ref: t.ref})
		}
	default:
		w.stack.hot.Release(ledger.Daemon, ledger.Unwritten, []Ref{t.ref})
		w.stack.filled() // it may go now, and while it was held perhaps nothing could
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.victim == 0 {
		if how == missed {
			w.miss(dirtyKey{rec: t.rec, failed: t.failed})
		} else {
			delete(w.mu.queued, t.rec.Key)
		}
		w.mu.held -= int64(t.rec.Size)
		w.more()
	}
	w.finish(t.gen)
}
