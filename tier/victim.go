package tier

import (
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

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
	if w.pushVictim(v) {
		return true
	}
	w.uncharge(n)
	w.count.drop(DropStopped, v.Size)
	return false
}

// pushVictim is false if nobody writes any more. All flushes that wait also
// wait for the victim: it may have been committed before they began.
func (w *writer) pushVictim(v Victim) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.stopped {
		return false
	}
	gen := w.mu.gen
	for target := range w.mu.flushes {
		gen = min(gen, target-1)
	}
	w.mu.evicted++
	w.mu.ready.push(writeTask{rec: v.Record, ref: Ref{Block: v.Block}, victim: w.mu.evicted, gen: gen})
	vs := w.mu.victims[v.Key]
	vs.unwritten++
	w.mu.victims[v.Key] = vs
	w.mu.open[gen]++
	w.more()
	return true
}

// occupied is what a block takes in the arena.
func occupied(b arena.Block) int64 { return int64(len(b.Padded())) }

// uncharge gives back what a victim was charged.
func (w *writer) uncharge(n int64) {
	w.stack.hot.Ledger().Uncharge(ledger.Daemon, ledger.Unwritten, n)
	w.stack.leaving.Add(-n)
}

// recall keeps victims that were deleted from being written.
func (w *writer) recall(ks []key.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.mu.victims) == 0 {
		return
	}
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
}
