package ledger_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
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

// client asks for a prefix, fills the missing entries, and gives all back.
func client(t *testing.T, l *ledger.Ledger, o ledger.Owner, r *rand.Rand) {
	ks := chain(uint32(r.IntN(4)), 1+r.IntN(150))
	out := make([]ledger.Entry, len(ks))
	class := ledger.Class(r.IntN(2))
	n, err := holdTouch(l, o, class, ks, out)
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

// Policies change while clients work and the daemon evicts: no entry is lost, none
// goes twice, and held entries stay.
func TestConcurrentSetPolicy(t *testing.T) {
	l := newLedger(t, "lru", ledger.Limits{})
	const clients, rounds = 4, 200
	kept := chain(99, 3000)
	l.Publish(fill(t, l, kept, 0), false)
	out := make([]ledger.Entry, len(kept))
	if n, err := holdTouch(l, ledger.Daemon, ledger.Pin, kept, out); n != len(kept) {
		t.Fatalf("held %d: %v", n, err)
	}
	var wg, daemon sync.WaitGroup
	done := make(chan struct{})
	for c := range uint64(clients) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(c, 3))
			o := l.NewOwner()
			for range rounds {
				client(t, l, o, r)
			}
			l.CloseOwner(o)
		})
	}
	daemon.Go(func() { sample(t, l, ledger.Limits{Lease: 1 << 40, Pin: 1 << 40, Load: 1 << 40, Total: 1 << 40}, done) })
	daemon.Go(func() {
		names, steps := policy.Names(), uint64(0)
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			if err := l.Tuning().SetPolicy(names[i%len(names)]); err != nil {
				t.Error(err)
			}
			s := l.Stats()
			if s.Steps < steps {
				t.Errorf("%d steps, %d before", s.Steps, steps)
			}
			steps = s.Steps
		}
	})
	wg.Wait()
	close(done)
	daemon.Wait()
	have := make([]bool, len(kept))
	if l.Lookup(kept, have); slices.Contains(have, false) {
		t.Error("a switch lost what is pinned")
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	l.Unhold(ledger.Daemon, ledger.Pin, ids(out))
	for left := l.Stats().Entries; left > 0; left-- {
		e, ok := l.Evict()
		if !ok {
			t.Fatalf("%d entries cannot be evicted", left)
		}
		l.Free(e.ID)
	}
	if s := l.Stats(); s.UsedBytes != 0 {
		t.Errorf("something remains: %+v", s)
	}
}

// The order of eviction survives a switch between policies of one order.
func TestSetPolicyKeepsTheOrder(t *testing.T) {
	l := newLedger(t, "lru", ledger.Limits{})
	var want []key.Key
	for p := range uint32(40) {
		ks := chain(p, 50)
		l.Publish(fill(t, l, ks, 0), false)
		slices.Reverse(ks)
		want = append(want, ks...)
	}
	pinned := chain(0, 50) // the oldest: refused by an eviction, and back
	out := make([]ledger.Entry, 50)
	l.Hold(ledger.Daemon, ledger.Pin, pinned, out)
	if e, ok := l.Evict(); !ok || e.Key != want[50] {
		t.Fatalf("evicted %v, %v", e.Key, ok)
	}
	want = append(want[:50:50], want[51:]...)
	for _, name := range []string{"fifo", "lru"} {
		if err := l.Tuning().SetPolicy(name); err != nil {
			t.Fatal(err)
		}
	}
	l.Unhold(ledger.Daemon, ledger.Pin, ids(out))
	if got := evictAll(t, l); !slices.Equal(got, want) {
		t.Error("another order")
	}
	if err := l.Tuning().SetPolicy("no-such-policy"); err == nil {
		t.Error("a policy that there is not")
	}
	if got := l.PolicyName(); got != "lru" {
		t.Errorf("the policy is %s", got)
	}
}
