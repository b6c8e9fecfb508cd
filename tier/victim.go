package tier

import (
	"context"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// handDown gives a victim to the nearest writer that takes it; from there it is
// passed on. It is charged once, however many tiers it goes to.
func (s *Stack) handDown(v Victim) bool {
	for _, w := range s.writers {
		if w.takes(v.Key.Space) && !w.has(v.Key, v.Sum) && w.takeVictim(v) {
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
	life, again := w.stack.departing.begin(v.Record, v.Block, w)
	if again {
		w.stack.refund(v)
		v.Block.Release()
		return true
	}
	if w.takeNew(v, life) {
		return true
	}
	w.stack.departing.end(v.Key, life)
	return false
}

// takeNew is takeVictim for one that is not on its way down already.
func (w *writer) takeNew(v Victim, life uint64) bool {
	n := occupied(v.Block)
	if !v.Charged {
		if err := w.stack.hot.Ledger().Charge(ledger.Daemon, ledger.Unwritten, n); err != nil {
			w.count.drop(DropQueueFull, v.Size)
			return false
		}
	}
	w.stack.leaving.Add(n)
	if w.pushVictim(v.Record, v.Block, life) {
		return true
	}
	w.stack.leaving.Add(-n)
	if !v.Charged {
		w.stack.hot.Ledger().Uncharge(ledger.Daemon, ledger.Unwritten, n)
	}
	return false
}

// pushVictim is false if the writer has stopped.
func (w *writer) pushVictim(r Record, b arena.Block, life uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.stopped {
		w.count.drop(DropStopped, r.Size)
		return false
	}
	gen := w.awaited()
	w.mu.ready.push(writeTask{rec: r, ref: Ref{Block: b}, victim: life, gen: gen})
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
		w.stack.departing.pass(t.rec.Key, t.victim, next)
		if next.pushVictim(t.rec, t.ref.Block, t.victim) {
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
	_, writing := w.mu.writing[k]
	return writing || w.stack.departing.isWith(k, w)
}

// occupied is what a block takes in the arena.
func occupied(b arena.Block) int64 { return int64(len(b.Padded())) }

// bury ends a departure and lets go of its memory.
func (s *Stack) bury(t writeTask) {
	s.departing.end(t.rec.Key, t.victim)
	s.settle(CPU, t.rec.Key)
	n := occupied(t.ref.Block)
	t.ref.Block.Release()
	s.uncharge(n)
	s.filled() // it may have come back, so that its room is not free
}

// refund gives back what was charged for a victim that no writer took.
func (s *Stack) refund(v Victim) {
	if v.Charged {
		s.hot.Ledger().Uncharge(ledger.Daemon, ledger.Unwritten, occupied(v.Block))
	}
}

// uncharge gives back what a victim was charged.
func (s *Stack) uncharge(n int64) {
	s.hot.Ledger().Uncharge(ledger.Daemon, ledger.Unwritten, n)
	s.leaving.Add(-n)
}
