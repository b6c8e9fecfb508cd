package tier

import (
	"context"
	"slices"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// handDown gives a victim to the nearest writer that takes it; from there it is
// passed on. It is charged once, however many tiers it goes to.
func (s *Stack) handDown(v Victim) bool {
	for _, w := range s.writers {
		if w.lacks(v.Key) && w.takeVictim(v) {
			return true
		}
	}
	return false
}

// lacks reports whether a chunk belongs into the writer's tier and is not
// known to be there.
func (w *writer) lacks(k key.Key) bool {
	return w.takes(k.Space) && !w.stack.indexed(w.place, k)
}

// takeVictim takes over a dirty chunk that DRAM evicted, if it is to be
// written and fits the budget of unwritten bytes.
func (w *writer) takeVictim(v Victim) bool {
	if w.mode == WriteSelective && v.Hits < w.minHits {
		w.count.add(&w.count.filtered, v.Size)
		return false
	}
	if isOff(w.to) {
		w.count.drop(DropTierOff, v.Size)
		return false
	}
	n := occupied(v.Block)
	if err := w.stack.hot.Ledger().Charge(ledger.Daemon, ledger.Unwritten, n); err != nil {
		w.count.drop(DropQueueFull, v.Size)
		return false
	}
	w.stack.leaving.Add(n)
	if w.pushVictim(v.Record, v.Block) {
		return true
	}
	w.stack.uncharge(n)
	return false
}

// pushVictim is false if nobody writes any more.
func (w *writer) pushVictim(r Record, b arena.Block) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.stopped {
		w.count.drop(DropStopped, r.Size)
		return false
	}
	gen := w.awaited()
	w.mu.evicted++
	w.mu.ready.push(writeTask{rec: r, ref: Ref{Block: b}, victim: w.mu.evicted, gen: gen})
	vs := w.mu.victims[r.Key]
	vs.unwritten++
	w.mu.victims[r.Key] = vs
	w.mu.open[gen]++
	w.more()
	return true
}

// awaited is the generation of what was committed before any of the flushes
// that wait began, as far as is known; called with the mutex held.
func (w *writer) awaited() uint64 {
	gen := w.mu.gen
	for target := range w.mu.flushes {
		gen = min(gen, target-1)
	}
	return gen
}

// passOn sees to it that the tiers behind this one get a victim too: nobody
// else will come back to it. Those that need not have it at once find it in
// this tier, if it is stored there; otherwise the block goes along, with what
// it was charged, and the result is true.
func (w *writer) passOn(t writeTask, how outcome) bool {
	for _, next := range w.stack.writers {
		if next.place <= w.place || !next.lacks(t.rec.Key) {
			continue
		}
		if how == stored && next.mode != WriteBack {
			next.passedOn(t.rec)
			continue
		}
		if isOff(next.to) {
			next.count.drop(DropTierOff, t.rec.Size)
			if how == stored {
				next.missHere(t.rec)
			}
			continue
		}
		if next.pushVictim(t.rec, t.ref.Block) {
			return true
		}
	}
	return false
}

// passedOn takes up a victim that a nearer tier has now.
func (w *writer) passedOn(r Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enqueue(r, w.awaited())
	w.more()
}

// landed waits until nothing of k is on its way to the tier, and reports
// whether something was.
func (w *writer) landed(ctx context.Context, k key.Key) (was bool) {
	for {
		w.mu.Lock()
		if !w.at(k) {
			w.mu.Unlock()
			return was
		}
		was = true
		change := w.changed()
		w.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return was
		}
	}
}

// isAt reports whether something of k is on its way to the tier.
func (w *writer) isAt(k key.Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at(k)
}

// at is isAt with the mutex held.
func (w *writer) at(k key.Key) bool {
	_, victim := w.mu.victims[k]
	_, writing := w.mu.writing[k]
	return victim || writing
}

// occupied is what a block takes in the arena.
func occupied(b arena.Block) int64 { return int64(len(b.Padded())) }

// bury frees the memory of a victim.
func (s *Stack) bury(b arena.Block) {
	n := occupied(b)
	b.Release()
	s.uncharge(n)
}

// uncharge gives back what a victim was charged.
func (s *Stack) uncharge(n int64) {
	s.hot.Ledger().Uncharge(ledger.Daemon, ledger.Unwritten, n)
	s.leaving.Add(-n)
}

// recall keeps victims that were deleted from being written.
func (w *writer) recall(d *deletion) {
	if d.in == nil {
		w.recallSpace(d.space)
	}
	for part := range slices.Chunk(d.keys, settleBatch) {
		w.recallSome(part)
	}
}

func (w *writer) recallSpace(id key.SpaceID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.mu.victims) > 0 {
		w.mu.recalled[id] = w.mu.evicted
	}
}

func (w *writer) recallSome(ks []key.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range ks {
		if vs, ok := w.mu.victims[k]; ok {
			vs.recalled = w.mu.evicted
			w.mu.victims[k] = vs
		}
	}
}

// forgetVictim forgets one victim of a key; called with the mutex held.
func (w *writer) forgetVictim(k key.Key) {
	vs := w.mu.victims[k]
	if vs.unwritten--; vs.unwritten > 0 {
		w.mu.victims[k] = vs
		return
	}
	delete(w.mu.victims, k)
	if len(w.mu.victims) == 0 {
		clear(w.mu.recalled)
	}
}
