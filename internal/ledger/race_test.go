package ledger_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/kvstored/kvstored/internal/ledger"
)

// Greedy clients fill, hold and give back the same chains while the daemon
// evicts; the budgets hold at every sample.
func TestConcurrentOwners(t *testing.T) {
	limits := ledger.Limits{Lease: 400 * page, Pin: 200 * page, Load: 200 * page, Unwritten: 200 * page, Total: 800 * page}
	l := newLedger(t, "lru", limits)
	const clients, rounds = 6, 400
	var wg sync.WaitGroup
	for c := range uint64(clients) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(c, 2))
			o := l.NewOwner()
			for range rounds {
				client(t, l, o, r)
			}
			l.CloseOwner(o)
		})
	}
	done := make(chan struct{})
	var daemon sync.WaitGroup
	daemon.Go(func() { sample(t, l, limits, done) })
	wg.Wait()
	close(done)
	daemon.Wait()
	evictAll(t, l)
	if s := l.Stats(); s.UsedBytes != 0 || s.Entries != 0 || s.Holes != 0 {
		t.Errorf("something remains: %+v", s)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}

// client asks for a prefix, fills what is missing, and gives all back.
func client(t *testing.T, l *ledger.Ledger, o ledger.Owner, r *rand.Rand) {
	ks := chain(uint32(r.IntN(4)), 1+r.IntN(150))
	out := make([]ledger.Entry, len(ks))
	class := ledger.Class(r.IntN(2))
	n, err := l.Hold(o, class, ks, true, out)
	var mine []ledger.ID
	for i := n; i < len(ks) && err == nil; i++ {
		id, state, e := l.Begin(o, ledger.Lease, ks[i], parent(ks, i), page)
		if err = e; err == nil && state == ledger.Absent {
			mine = append(mine, id)
		}
	}
	if err != nil && !errors.Is(err, ledger.ErrOverBudget) && !errors.Is(err, ledger.ErrBusy) {
		t.Error(err)
	}
	if len(mine) > 0 {
		k := r.IntN(len(mine) + 1)
		for _, id := range mine[k:] {
			l.Abort(id)
		}
		if held, _ := l.PublishHeld(o, ledger.Load, mine[:k], true); held > 0 {
			l.Unhold(o, ledger.Load, mine[:held])
		}
	}
	l.Unhold(o, class, ids(out[:n]))
}

// sample evicts, removes and watches until done.
func sample(t *testing.T, l *ledger.Ledger, limits ledger.Limits, done chan struct{}) {
	r := rand.New(rand.NewPCG(9, 9))
	for {
		select {
		case <-done:
			return
		default:
		}
		if e, ok := l.Evict(); ok {
			l.Free(e.ID)
		}
		ks := chain(uint32(r.IntN(4)), 150)
		if e, ok := l.Remove(ks[r.IntN(len(ks))]); ok {
			l.Free(e.ID)
		}
		s := l.Stats()
		switch {
		case s.ProtectedBytes > limits.Total,
			s.ClassBytes[ledger.Lease] > limits.Lease,
			s.ClassBytes[ledger.Pin] > limits.Pin,
			s.ClassBytes[ledger.Load] > limits.Load,
			s.EvictableBytes < 0:
			t.Errorf("over budget: %+v", s)
			return
		}
	}
}
