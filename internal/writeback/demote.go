package writeback

import (
	"context"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// demote takes over a dirty chunk that DRAM evicted, if it fits the budget of
// unwritten bytes.
func (w *Writer) demote(v tier.Victim) bool {
	if w.to.Off() {
		w.count.drop(&v.Record, explain.WhileOff)
		return false
	}
	life, again := w.writers.transit.begin(v.Record, v.Block, w)
	if again {
		w.writers.refund(v)
		v.Block.Release()
		return true
	}
	if w.demoteNew(v, life) {
		return true
	}
	w.writers.transit.end(v.Key, life)
	return false
}

// demoteNew is demote for one that is not in transit already.
func (w *Writer) demoteNew(v tier.Victim, life uint64) bool {
	n := occupied(v.Block)
	if !v.Charged {
		if err := w.writers.o.Hot.Ledger().Charge(ledger.Daemon, ledger.Unwritten, n); err != nil {
			w.count.drop(&v.Record, explain.QueueFull)
			return false
		}
	}
	w.writers.demoting.Add(n)
	if w.pushVictim(v.Record, v.Block, life) {
		return true
	}
	w.writers.demoting.Add(-n)
	if !v.Charged {
		w.writers.o.Hot.Ledger().Uncharge(ledger.Daemon, ledger.Unwritten, n)
	}
	return false
}

// pushVictim is false if the writer has stopped.
func (w *Writer) pushVictim(r tier.Record, b arena.Block, life uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.stopped {
		w.count.drop(&r, explain.Stopped)
		return false
	}
	i := item{rec: r, gen: w.mu.flushes.awaited(), life: life}
	w.mu.backlog.move(&i, ready)
	w.mu.backlog.ready.push(task{item: i, ref: tier.Ref{Block: b}})
	w.more()
	return true
}

// forward sees to it that the tiers behind this one get a victim too: no other
// writer will come back to it. Those that need not have it at once find it in
// this tier, if it is stored there; otherwise the block goes along, with the
// bytes that it was charged, and the result is true.
func (w *Writer) forward(t task, how outcome) bool {
	for _, next := range w.writers.list[w.rank:] {
		if !next.needs(t.rec.Key) {
			continue
		}
		if how == stored && !next.when.holds() {
			next.Forward(t.rec)
			continue
		}
		if next.to.Off() {
			next.count.drop(&t.rec, explain.WhileOff)
			if how == stored {
				next.remember(t.rec)
			}
			continue
		}
		w.writers.transit.forward(t.rec.Key, t.life, next)
		if next.pushVictim(t.rec, t.ref.Block, t.life) {
			return true
		}
	}
	return false
}

// remember puts a chunk into retry that a nearer tier has.
func (w *Writer) remember(r tier.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.off = true
	w.mu.backlog.toRetry(item{rec: r})
}

// release ends what next began.
func (w *Writer) release(k key.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.atWork.release(k)
	w.mu.changed.Wake()
}

// awaitTasks waits until nothing of k is on its way to the tier, and reports
// whether something was.
func (w *Writer) awaitTasks(ctx context.Context, k key.Key) (was bool) {
	_ = w.await(ctx, func() bool {
		at := w.at(k)
		was = was || at
		return !at
	})
	return was
}

// isAt reports whether something of k is on its way to the tier.
func (w *Writer) isAt(k key.Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at(k)
}

// at is isAt with the mutex held.
func (w *Writer) at(k key.Key) bool {
	_, writing := w.mu.atWork[k]
	return writing || w.writers.transit.isWith(k, w)
}
