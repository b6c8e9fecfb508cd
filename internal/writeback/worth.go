package writeback

import (
	"cmp"
	"slices"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// plans reports whether the tier may not want a chunk.
func (q *queue) plans() bool { return q.to.Planner != nil && q.to.Planner.Plans() }

// wants decides whether the tier is to have a chunk: its policy says so, or the
// client that stored it forces it; and the chunk that it hangs on is there, or has
// just been taken to be written: a prompt comes in its order. Called with the mutex held.
func (q *queue) wants(t *task) bool {
	if !q.plans() || q.to.Scanning() {
		return true
	}
	r := &t.rec
	if up := (key.Key{Space: r.Key.Space, Hash: r.Parent}); r.Parent != (key.Hash{}) && !q.mu.atWork.wants(up) {
		if q.to.Resident != nil && !q.to.Resident.Has(up) && !(t.life > 0 && q.mayCome(up)) {
			return false
		}
	}
	force := r.Force
	if t.life == 0 && !t.inNearer {
		force = tier.HotRecord(q.hot.Ledger().Get(t.ref.ID), 0).Force
	}
	return force || q.to.Planner.Admit(r.Key.Space, r.Parent, []key.Hash{r.Key.Hash}, r.Size, false) > 0
}

// mayCome reports whether the chunk that a victim hangs on may still come:
// victims come tail first, so that it was in DRAM until now, or is on its way
// here. A chunk in neither place was deleted.
func (q *queue) mayCome(k key.Key) bool {
	e, st := q.hot.Ledger().Find(k)
	return st != ledger.Resident || !tier.Declined(e.Value) || q.mu.backlog.has(k)
}

// markDeclined notes at an entry of DRAM whether the tier wants it. It reports
// whether that did not want it before either.
func (q *queue) markDeclined(t *task) (again bool) {
	if q.to.Planner == nil || t.life > 0 || t.inNearer {
		return false
	}
	l := q.hot.Ledger()
	was := l.Get(t.ref.ID).Value
	again = t.declined && tier.Declined(was)
	l.SetValue(t.ref.ID, tier.WithDeclined(was, t.declined))
	return again
}

// offerDeclined has chunks written that only DRAM has and that nothing would write
// before DRAM evicts them: those that the tier declined, and those that it has evicted.
// A prefix comes before what stands on it. With forced the tier takes them, and all
// that was enqueued before, whatever its policy says.
func (w *Writer) offerDeclined(forced bool) {
	if forced {
		w.queue.offerDeclined(nil, forced) // before the list: what is declined from now on is offered anew
	}
	if w.rank != 1 || w.to.Planner == nil {
		return
	}
	var list []tier.Record
	ledger.EachDirty(w.writers.o.Hot.Ledger(), func(e *ledger.Entry) {
		if tier.Declined(e.Value) && w.Takes(e.Key.Space) {
			list = append(list, tier.HotRecord(*e, 0))
		}
	})
	slices.SortFunc(list, func(a, b tier.Record) int { return cmp.Compare(a.Depth, b.Depth) })
	for some := range slices.Chunk(list, batch) {
		w.queue.offerDeclined(some, forced)
	}
}

// noteGone has chunks offered again that the tier has evicted while DRAM alone has them,
// when DRAM evicts them: where both tiers are one cache the tier decides anew then.
func (s *Writers) noteGone(gone []key.Key) {
	for _, k := range gone {
		if s.IsBelow(k) {
			continue
		}
		ref, ok := s.holdResident(k)
		if !ok {
			continue
		}
		l := s.o.Hot.Ledger()
		l.SetDirty(ref.ID, true)
		l.SetValue(ref.ID, tier.WithDeclined(l.Get(ref.ID).Value, true))
		s.Unhold(ref)
	}
}
