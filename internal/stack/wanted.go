package stack

import (
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// wants decides whether the tier is to have a chunk: its policy says so, or the
// client that stored it forces it; and the chunk that it hangs on is there, or has
// just been taken to be written. It is called with the mutex held, for the chunks
// of a prompt in their order.
func (q *queue) wants(t *task) bool {
	if q.to.Planner == nil || !q.to.Planner.Plans() || q.to.scan.running.Load() {
		return true
	}
	r := &t.rec
	if up := (key.Key{Space: r.Key.Space, Hash: r.Parent}); r.Parent != (key.Hash{}) && !q.mu.atWork[up].wanted {
		if q.to.Resident != nil && !q.to.Resident.Has(up) && !(t.life > 0 && q.mayCome(up)) {
			return false
		}
	}
	return q.forced(t) || q.to.Planner.Admit(r.Key.Space, r.Parent, []key.Hash{r.Key.Hash}, r.Size, false) > 0
}

// mayCome reports whether the chunk that a victim hangs on may still come:
// victims come tail first, so that it was in DRAM until now, or is on its way
// here. A chunk in neither place was deleted. It is called with the
// mutex held.
func (q *queue) mayCome(k key.Key) bool {
	e, st := q.dram.hot.Ledger().Find(k)
	return st != ledger.Resident || !tier.Declined(e.Value) || q.mu.backlog.has(k)
}

// markDeclined notes at an entry of DRAM whether the tier wants it. It reports
// whether that did not want it before either.
func (q *queue) markDeclined(t *task) (again bool) {
	if q.to.Planner == nil || t.life > 0 || t.inNearer {
		return false
	}
	l := q.dram.hot.Ledger()
	v := l.Get(t.ref.ID).Value
	again = t.declined && tier.Declined(v)
	l.SetValue(t.ref.ID, tier.WithDeclined(v, t.declined))
	return again
}

// forced reports whether the client that stored a chunk wants it kept in any
// case.
func (q *queue) forced(t *task) bool {
	if t.life > 0 || t.inNearer {
		return t.rec.Force
	}
	return tier.HotRecord(q.dram.hot.Ledger().Get(t.ref.ID), 0).Force
}
