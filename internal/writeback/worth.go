package writeback

import (
	"cmp"
	"slices"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// worth says which chunks a tier is to have. It has no state of its own. The mutex of the
// queue guards the task, atWork and backlog that it is given.
type worth struct {
	to  *Tier
	hot tier.Hot
}

// plans reports whether the tier may not want a chunk.
func (v worth) plans() bool { return v.to.Planner != nil && v.to.Planner.Plans() }

// wants decides whether the tier is to have a chunk: its policy says so, or the
// client that stored it forces it; and the chunk that it hangs on is there, or has
// just been taken to be written. The chunks of a prompt come in their order.
func (v worth) wants(t *task, taken atWork, b *backlog) bool {
	if !v.plans() || v.to.Scanning() {
		return true
	}
	r := &t.rec
	if up := (key.Key{Space: r.Key.Space, Hash: r.Parent}); r.Parent != (key.Hash{}) && !taken.wants(up) {
		if v.to.Resident != nil && !v.to.Resident.Has(up) && !(t.life > 0 && v.mayCome(up, b)) {
			return false
		}
	}
	force := r.Force
	if t.life == 0 && !t.inNearer {
		force = tier.HotRecord(v.hot.Ledger().Get(t.ref.ID), 0).Force
	}
	return force || v.to.Planner.Admit(r.Key.Space, r.Parent, []key.Hash{r.Key.Hash}, r.Size, false) > 0
}

// mayCome reports whether the chunk that a victim hangs on may still come:
// victims come tail first, so that it was in DRAM until now, or is on its way
// here. A chunk in neither place was deleted.
func (v worth) mayCome(k key.Key, b *backlog) bool {
	e, st := v.hot.Ledger().Find(k)
	return st != ledger.Resident || !tier.Declined(e.Value) || b.has(k)
}

// markDeclined notes at an entry of DRAM whether the tier wants it. It reports
// whether that did not want it before either.
func (v worth) markDeclined(t *task) (again bool) {
	if v.to.Planner == nil || t.life > 0 || t.inNearer {
		return false
	}
	l := v.hot.Ledger()
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
