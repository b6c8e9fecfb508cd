package writeback

import (
	"cmp"
	"slices"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// wants decides whether the tier is to have a chunk: its policy says so, or the
// client that stored it forces it; and the chunk that it hangs on is there, or has
// just been taken to be written. It is called with the mutex held, for the chunks
// of a prompt in their order.
func (w *Writer) wants(t *task) bool {
	if w.to.Planner == nil || !w.to.Planner.Plans() || w.to.Scanning() {
		return true
	}
	if t.gen < w.mu.flushes.wanted {
		return true
	}
	r := &t.rec
	if up := (key.Key{Space: r.Key.Space, Hash: r.Parent}); r.Parent != (key.Hash{}) && !w.mu.atWork.wants(up) {
		if w.to.Resident != nil && !w.to.Resident.Has(up) && !(t.life > 0 && w.mayCome(up)) {
			return false
		}
	}
	return w.forced(t) || w.to.Planner.Admit(r.Key.Space, r.Parent, []key.Hash{r.Key.Hash}, r.Size, false) > 0
}

// mayCome reports whether the chunk that a victim hangs on may still come:
// victims come tail first, so that it was in DRAM until now, or is on its way
// here. A chunk in neither place was deleted. It is called with the
// mutex held.
func (w *Writer) mayCome(k key.Key) bool {
	e, st := w.writers.o.Hot.Ledger().Find(k)
	return st != ledger.Resident || !tier.Declined(e.Value) || w.mu.backlog.has(k)
}

// markDeclined notes at an entry of DRAM whether the tier wants it. It reports
// whether that did not want it before either.
func (w *Writer) markDeclined(t *task) (again bool) {
	if w.to.Planner == nil || t.life > 0 || t.inNearer {
		return false
	}
	l := w.writers.o.Hot.Ledger()
	v := l.Get(t.ref.ID).Value
	again = t.declined && tier.Declined(v)
	l.SetValue(t.ref.ID, tier.WithDeclined(v, t.declined))
	return again
}

// forced reports whether the client that stored a chunk wants it kept in any
// case.
func (w *Writer) forced(t *task) bool {
	if t.life > 0 || t.inNearer {
		return t.rec.Force
	}
	return tier.HotRecord(w.writers.o.Hot.Ledger().Get(t.ref.ID), 0).Force
}

// offerDeclined has chunks written that only DRAM has and that nothing would write
// before DRAM evicts them: those that the tier declined, and those that it has evicted.
// A prefix comes before what stands on it. With forced the tier takes them, and all
// that was enqueued before, whatever its policy says.
func (w *Writer) offerDeclined(forced bool) {
	if forced {
		w.offerSomeDeclined(nil, forced, 0) // before the list: what is declined from now on is offered anew
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
	now := w.when.clock()
	for some := range slices.Chunk(list, batch) {
		w.offerSomeDeclined(some, forced, now)
	}
}

func (w *Writer) offerSomeDeclined(list []tier.Record, forced bool, now uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if forced {
		w.mu.flushes.wanted = w.mu.flushes.gen + 1
	}
	for _, r := range list {
		if !w.mu.backlog.has(r.Key) {
			w.mu.backlog.add(r, w.mu.flushes.gen, now)
		}
	}
	w.more()
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
