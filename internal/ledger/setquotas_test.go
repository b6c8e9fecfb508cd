package ledger_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// inSpace is a prompt of n chunks in a space of its own.
func inSpace(space byte, n int) []key.Key {
	ks := chain(uint32(space), n)
	for i := range ks {
		ks[i].Space = key.SpaceID{space}
	}
	return ks
}

func checked(t *testing.T, l *ledger.Ledger) {
	t.Helper()
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
}

// Quotas are resized, added, reordered and taken away: each counts what its
// spaces have, goes on with its counts and order if it was there before, and is
// kept by evicting its own.
func TestSetQuotas(t *testing.T) {
	l := newLedger(t, "lru", ledger.Limits{})
	for s := range byte(3) {
		for _, k := range inSpace(s, 10) { // each for itself, so that all may go
			l.Publish(fill(t, l, []key.Key{k}, 0), false)
		}
	}
	setQuotas := func(qs []ledger.QuotaChange, under map[key.SpaceID]int) {
		t.Helper()
		if err := l.Tuning().SetQuotas(qs, under); err != nil {
			t.Fatal(err)
		}
		checked(t, l)
	}
	wantUsed := func(pages ...int64) {
		t.Helper()
		qs := l.Quotas()
		if len(qs) != len(pages) {
			t.Fatalf("%d quotas, want %d", len(qs), len(pages))
		}
		for i, q := range qs {
			if q.UsedBytes != pages[i]*page {
				t.Errorf("quota %d counts %d pages, want %d", i, q.UsedBytes/page, pages[i])
			}
		}
	}
	evictOver := func(space byte, from, n int) {
		t.Helper()
		for i := range n {
			e, ok := l.EvictOver()
			if !ok || e.Key != inSpace(space, 10)[from+i] {
				t.Fatalf("victim %d is %v (%v), want chunk %d of space %d", i, e.Key, ok, from+i, space)
			}
			l.Free(e.ID)
		}
		if l.OverQuota() {
			t.Error("it is over its quota all the same")
		}
	}
	a, b, c := key.SpaceID{0}, key.SpaceID{1}, key.SpaceID{2}
	quota := func(pages int64, was int) ledger.QuotaChange {
		return ledger.QuotaChange{Quota: ledger.Quota{Bytes: pages * page}, Was: was}
	}

	setQuotas([]ledger.QuotaChange{quota(8, -1)}, map[key.SpaceID]int{a: 0})
	wantUsed(10)
	evictOver(0, 0, 2)
	setQuotas([]ledger.QuotaChange{quota(12, -1), quota(6, 0)}, map[key.SpaceID]int{a: 1, b: 0, c: 0}) // before it, and smaller
	wantUsed(20, 8)
	if n := l.Quotas()[1].Evictions; n != 2 {
		t.Errorf("the quota that goes on has %d evictions, want the 2 it had", n)
	}
	setQuotas([]ledger.QuotaChange{quota(12, 0), quota(7, 1)}, map[key.SpaceID]int{a: 1, b: 0, c: 0})
	wantUsed(20, 8)
	for range 8 { // its own of the first, in the order in which they came
		e, ok := l.EvictOver()
		if !ok || e.Key.Space != b {
			t.Fatalf("victim %v, %v", e.Key, ok)
		}
		l.Free(e.ID)
	}
	evictOver(0, 2, 1)
	setQuotas([]ledger.QuotaChange{quota(1, 0)}, map[key.SpaceID]int{c: 0}) // a and b are under none
	wantUsed(10)
	evictOver(2, 0, 9)
	setQuotas(nil, nil)
	wantUsed()
	if _, ok := l.EvictOver(); ok || l.OverQuota() {
		t.Error("a quota that was taken away evicts")
	}
	l.Tuning().SetQuotas([]ledger.QuotaChange{quota(1, -1)}, nil)
	l.Tuning().Assign(a, 0) // as of a space that is opened later
	wantUsed(7)
	checked(t, l)
	evictAll(t, l)
}

// Quotas come, go and change places while clients fill, hold and let go in four
// spaces and the daemon evicts: nothing is lost and nothing counted twice.
func TestConcurrentSetQuotas(t *testing.T) {
	l := newLedger(t, "lru", ledger.Limits{})
	const spaces, clients, rounds = 4, 3, 300
	work := func(r *rand.Rand) {
		ks := inSpace(byte(r.IntN(spaces)), 1+r.IntN(200))
		out := make([]ledger.Entry, len(ks))
		n, _ := holdTouch(l, ledger.Daemon, ledger.IO, ks, out)
		var mine []ledger.ID
		for i := n; i < len(ks); i++ {
			id, state, err := l.Begin(ledger.Daemon, ledger.IO, ks[i], parent(ks, i), page)
			if err == nil && state == ledger.Absent {
				mine = append(mine, id)
				if e, ok, _ := l.EvictOwn(id, false); ok {
					l.Free(e.ID)
				}
			}
		}
		l.Publish(mine, false)
		l.Unhold(ledger.Daemon, ledger.IO, ids(out[:n]))
		if e, ok := l.EvictOver(); ok {
			l.Free(e.ID)
		}
	}
	var wg, switcher sync.WaitGroup
	done := make(chan struct{})
	for c := range uint64(clients) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(c, 5))
			for range rounds {
				work(r)
			}
		})
	}
	switcher.Go(func() {
		r, have := rand.New(rand.NewPCG(1, 6)), 0
		for stop := false; !stop; {
			select {
			case <-done:
				stop = true // once more when all is at rest
			default:
			}
			qs, under := make([]ledger.QuotaChange, r.IntN(4)), make(map[key.SpaceID]int)
			was := r.Perm(max(have, len(qs)))
			for i := range qs {
				qs[i] = ledger.QuotaChange{Quota: ledger.Quota{Bytes: int64(1+r.IntN(200)) * page}, Was: -1}
				if was[i] < have {
					qs[i].Was = was[i]
				}
			}
			for s := range byte(spaces) {
				if i := r.IntN(4); i < len(qs) {
					under[key.SpaceID{s}] = i
				}
			}
			if err := l.Tuning().SetQuotas(qs, under); err != nil {
				t.Error(err)
			}
			have = len(qs)
			if r.IntN(4) == 0 {
				if err := l.Tuning().SetPolicy([]string{"lru", "s3fifo", "tenure", "arc"}[r.IntN(4)]); err != nil {
					t.Error(err)
				}
			}
			l.Planning().Train()
		}
	})
	wg.Wait()
	close(done)
	switcher.Wait()
	checked(t, l)
	evictAll(t, l)
	if s := l.Stats(); s.UsedBytes != 0 || s.Entries != 0 || s.Holes != 0 {
		t.Errorf("something remains: %+v", s)
	}
	checked(t, l)
}
