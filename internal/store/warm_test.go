package store_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

func TestWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := diskOnly(t, 3, options{})
		by := store.Requester{Owner: ledger.Daemon, Job: 1}
		for i := range 2 {
			if n, from, err := r.Loader.Warm(t.Context(), by, c, i, tier.All); n != size || from != tier.Disk || err != nil {
				t.Errorf("chunk %d: %d bytes from %s, error %v", i, n, from, err)
			}
		}
		if n, from, err := r.Loader.Warm(t.Context(), by, c, 0, tier.All); n != 0 || from != tier.CPU || err != nil {
			t.Errorf("again: %d bytes from %s, error %v", n, from, err)
		}
		if _, _, err := r.Loader.Warm(t.Context(), by, tiertest.Chain(9, 1), 0, tier.All); !errors.Is(err, tier.ErrNotFound) {
			t.Errorf("what nobody has: %v", err)
		}
		r.wantIn(c, 2, 1)
		r.evict() // nothing of it is held
		r.wantIn(c, 0, 3)
	})
}

// Who is in a hurry for a chunk that idle work waits to load does not wait as
// idle work does.
func TestHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options{hook: tierfault.On(tierfault.Get, tierfault.Fault{Delay: time.Second})}
		o.loads[tier.Disk] = tier.Limit{Loads: 1}
		r, c := diskOnly(t, 12, o)
		busy, late := r.Leases.NewOwner(), r.Leases.NewOwner()
		var wg sync.WaitGroup
		for i := range 10 { // 10 s of work before any idle work
			wg.Go(func() {
				if err := r.loadAs(t.Context(), busy, c, i); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		for i := 10; i < 12; i++ {
			wg.Go(func() {
				if _, _, err := r.Loader.Warm(t.Context(), store.Requester{Owner: late}, c, i, tier.All); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		if err := r.loadAs(t.Context(), late, c, 10); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("the chunk came after %s; want it next, after 2 s", d)
		}
		wg.Wait()
		if d := time.Since(start); d != 12*time.Second {
			t.Errorf("all took %s; want 12 s: no chunk twice", d)
		}
		r.Leases.CloseOwner(busy)
		r.Leases.CloseOwner(late)
	})
}

// Hurry comes and goes at any moment; every load is answered.
func TestHurryRaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options{hook: tierfault.On(tierfault.Get, tierfault.Fault{Delay: time.Millisecond})}
		o.loads[tier.Disk] = tier.Limit{Loads: 2}
		r, c := diskOnly(t, 8, o)
		var wg sync.WaitGroup
		for n := range 200 {
			wg.Go(func() {
				time.Sleep(time.Duration(n%13) * time.Millisecond / 2)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+n%5)*time.Millisecond)
				defer cancel()
				var err error
				if i := n % 8; n%3 == 0 {
					err = r.loadAs(ctx, ledger.Daemon, c, i)
				} else {
					_, _, err = r.Loader.Warm(ctx, store.Requester{Owner: ledger.Daemon, Job: uint64(n)}, c, i, tier.All)
				}
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
	})
}

// A chunk of a group counts where the farthest of it is, and only if all of
// it is there.
func TestPlanOfRanks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		cs := make([]key.Chain, 3)
		for i := range cs {
			cs[i] = *tiertest.Chain(1, 6)
			cs[i].Space[0] ^= byte(i)
		}
		for i, have := range []int{6, 5, 4} {
			r.put(&cs[i], 0, have, size)
		}
		r.flush()
		if err := r.hot.Delete(t.Context(), tiertest.Keys(&cs[1], 2, 5)); err != nil {
			t.Fatal(err)
		}
		r.wantIn(&cs[1], 5, 0) // the index was not told
		for i := 2; i < 5; i++ {
			if _, err := r.Leases.Hold(ledger.Daemon, ledger.IO, &cs[1], i, i+1, make([]tier.Ref, 1)); err != nil {
				t.Fatal(err)
			}
		}
		m, err := r.Lookups.Plan(t.Context(), store.Plain(cs), tier.All, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		if m.Chunks != 4 || m.Hot != 2 || m.In[tier.CPU].Chunks != 2 || m.In[tier.Disk].Chunks != 2 || m.Tokens != 4*tiertest.ChunkTokens {
			t.Errorf("together %+v", m)
		}
		if !slices.Equal(m.Runs, []int{6, 5, 4}) || m.Next != 4 {
			t.Errorf("alone %d, together %d", m.Runs, m.Next)
		}
		if m, _ := r.Lookups.Plan(t.Context(), store.Plain(cs), tier.Of(tier.CPU), 0, nil); m.Chunks != 2 {
			t.Errorf("in DRAM %+v", m)
		}
		cs[2].Space[5] ^= 1 // a rank that has nothing
		if m, _ := r.Lookups.Plan(t.Context(), store.Plain(cs), tier.All, 0, nil); m.Chunks != 0 {
			t.Errorf("with one that has nothing: %+v", m)
		}
	})
}

func TestSpeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := diskOnly(t, 33, options{hook: tierfault.On(tierfault.Get, tierfault.Fault{Delay: 10 * time.Millisecond})})
		if s := r.Loader.Speed(tier.Disk); s.First != 0 || s.BytesPerSecond != 0 || s.Others != 0 {
			t.Errorf("before any load: %+v", s)
		}
		if err := r.load(c, 32); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := w; i < 32; i += 4 {
					if err := r.load(c, i); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		s := r.Loader.Speed(tier.Disk)
		if s.First != 10*time.Millisecond || s.ChunkBytes != size {
			t.Errorf("%+v; want 10 ms for one chunk of %d bytes", s, size)
		}
		if alone, four := size*100.0, 4*size*100.0; s.BytesPerSecond <= alone || s.BytesPerSecond > four {
			t.Errorf("%.0f bytes a second; want more than %.0f, what one at a time gets, and not above %.0f", s.BytesPerSecond, alone, four)
		}
		if s := r.Loader.Speed(tier.CPU); s != (store.Speed{}) {
			t.Errorf("of DRAM: %+v", s)
		}
	})
}
