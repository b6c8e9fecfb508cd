package writeback

import (
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/tier"
)

// demote takes over a dirty chunk that DRAM evicted, if it fits the budget of
// unwritten bytes.
func (w *Writer) demote(v tier.Victim) bool {
	if w.to.Off() {
		w.count.drop(&v.Record, explain.WhileOff)
		return false
	}
	life, again := w.writers.transit.begin(v.Record, v.Block, &w.queue)
	if again {
		w.writers.refund(v)
		v.Block.Release()
		return true
	}
	n := occupied(v.Block)
	if !v.Charged {
		if err := w.writers.o.Hot.Ledger().Charge(ledger.Daemon, ledger.Unwritten, n); err != nil {
			w.count.drop(&v.Record, explain.QueueFull)
			w.writers.transit.end(v.Key, life)
			return false
		}
	}
	w.writers.demoting.Add(n)
	if w.queue.push(v.Record, v.Block, life) {
		return true
	}
	w.writers.demoting.Add(-n)
	if !v.Charged {
		w.writers.o.Hot.Ledger().Uncharge(ledger.Daemon, ledger.Unwritten, n)
	}
	w.writers.transit.end(v.Key, life)
	return false
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
		if how == stored && !next.Defers() {
			next.Forward(t.rec)
			continue
		}
		if next.to.Off() {
			next.count.drop(&t.rec, explain.WhileOff)
			if how == stored {
				next.queue.remember(t.rec)
			}
			continue
		}
		w.writers.transit.forward(t.rec.Key, t.life, &next.queue)
		if next.queue.push(t.rec, t.ref.Block, t.life) {
			return true
		}
	}
	return false
}
