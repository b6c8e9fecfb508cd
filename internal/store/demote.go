package store

import (
	"context"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// demote takes over a dirty chunk that DRAM evicted, if it fits the budget of
// unwritten bytes.
func (w *writer) demote(v tier.Victim) bool {
	if w.to.Off() {
		w.count.drop(&v.Record, DropTierOff)
		return false
	}
	life, again := w.dram.transit.begin(v.Record, v.Block, &w.queue)
	if again {
		w.dram.refund(v)
		v.Block.Release()
		return true
	}
	if w.demoteNew(v, life) {
		return true
	}
	w.dram.transit.end(v.Key, life)
	return false
}

// demoteNew is demote for one that is not in transit already.
func (w *writer) demoteNew(v tier.Victim, life uint64) bool {
	n := occupied(v.Block)
	if !v.Charged {
		if err := w.dram.hot.Ledger().Charge(ledger.Daemon, ledger.Unwritten, n); err != nil {
			w.count.drop(&v.Record, DropQueueFull)
			return false
		}
	}
	w.dram.demotingBytes.Add(n)
	if w.pushVictim(v.Record, v.Block, life) {
		return true
	}
	w.dram.demotingBytes.Add(-n)
	if !v.Charged {
		w.dram.hot.Ledger().Uncharge(ledger.Daemon, ledger.Unwritten, n)
	}
	return false
}

// pushVictim is false if the writer has stopped.
func (q *queue) pushVictim(r tier.Record, b arena.Block, life uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.stopped {
		q.count.drop(&r, DropStopped)
		return false
	}
	i := item{rec: r, gen: q.mu.flushes.awaited(), life: life}
	q.mu.backlog.move(&i, ready)
	q.mu.backlog.ready.push(task{item: i, ref: tier.Ref{Block: b}})
	q.more()
	return true
}

// forward sees to it that the tiers behind this one get a victim too: no other
// writer will come back to it. Those that need not have it at once find it in
// this tier, if it is stored there; otherwise the block goes along, with the
// bytes that it was charged, and the result is true.
func (w *writer) forward(t task, how outcome) bool {
	for _, l := range w.dram.levels.below[w.to.rank:] {
		next := l.writer
		if !next.needs(t.rec.Key) {
			continue
		}
		if how == stored && !next.when.holds() {
			next.forwarded(t.rec)
			continue
		}
		if l.Off() {
			next.count.drop(&t.rec, DropTierOff)
			if how == stored {
				next.remember(t.rec)
			}
			continue
		}
		w.dram.transit.forward(t.rec.Key, t.life, &next.queue)
		if next.pushVictim(t.rec, t.ref.Block, t.life) {
			return true
		}
	}
	return false
}

// remember puts a chunk into retry that a nearer tier has.
func (q *queue) remember(r tier.Record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.off = true
	q.mu.backlog.toRetry(item{rec: r})
}

// release ends what next began.
func (q *queue) release(k key.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.atWork.release(k)
	q.mu.changed.Wake()
}

// awaitTasks waits until nothing of k is on its way to the tier, and reports
// whether something was.
func (q *queue) awaitTasks(ctx context.Context, k key.Key) (was bool) {
	_ = q.await(ctx, func() bool {
		at := q.at(k)
		was = was || at
		return !at
	})
	return was
}

// isAt reports whether something of k is on its way to the tier.
func (q *queue) isAt(k key.Key) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.at(k)
}

// at is isAt with the mutex held.
func (q *queue) at(k key.Key) bool {
	_, writing := q.mu.atWork[k]
	return writing || q.dram.transit.isWith(k, q)
}

// occupied is what a block takes in the arena.
func occupied(b arena.Block) int64 { return int64(len(b.Padded())) }
