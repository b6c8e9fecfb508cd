package store_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// swept is how long a chunk that has expired may stay in a tier that works.
const swept = 10 * time.Second

// putAged stores a new chain of n chunks that may become so old.
func (r *rig) putAged(c *key.Chain, n int, maxAge time.Duration) {
	r.t.Helper()
	grants, err := r.reserve(ledger.Daemon, c, 0, n, size)
	if err != nil || len(grants) != n {
		r.t.Fatalf("%d of %d chunks: %v", len(grants), n, err)
	}
	refs, stored := fill(c, 0, grants), make([]bool, n)
	r.Filler.Commit(c, 0, refs, maxAge, stored)
}

// hides checks that nothing of c is found, held or loaded.
func (r *rig) hides(c *key.Chain) {
	r.t.Helper()
	if m := r.match(c); m.Chunks > 0 {
		r.t.Errorf("%d chunks that have expired are found", m.Chunks)
	}
	for _, search := range []tier.Set{tier.All, tier.Of(tier.CPU), tier.Of(tier.Disk)} {
		if why := r.Lookups.Why(c, 0, search); why.Reason != explain.Deleted || why.Key != c.Key(0) {
			r.t.Errorf("a chunk that has expired is absent in %b as %v", search, why.Name())
		}
	}
	refs := make([]tier.Ref, c.Len())
	if n, _ := r.Leases.Hold(ledger.Daemon, ledger.IO, c, 0, c.Len(), refs); n > 0 {
		r.t.Errorf("%d chunks that have expired are held", n)
	}
	for i := range refs {
		if err := r.load(c, i); !errors.Is(err, tier.ErrNotFound) {
			r.t.Errorf("chunk %d, which has expired, is loaded: %v", i, err)
		}
		if _, _, err := r.Loader.Warm(context.Background(), store.Requester{}, c, i, tier.All); !errors.Is(err, tier.ErrNotFound) {
			r.t.Errorf("chunk %d, which has expired, is warmed: %v", i, err)
		}
	}
}

// TestMaxAge: a chunk is found until its time has come, and not a second longer, by no
// way; seconds later it is in no tier any more. Others stay.
func TestMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{quotas: []store.Quota{{Match: "short", MaxAge: 40 * time.Second}}})
		stays, aged, ruled := tiertest.Chain(1, 3), tiertest.Chain(2, 3), tiertest.Chain(3, 3)
		ruled.Space = key.SpaceID{9}
		r.Operator.OpenSpace(ruled.Space, "short")
		defer r.Operator.CloseSpace(ruled.Space)
		r.putAged(stays, 3, 0)
		r.putAged(aged, 3, time.Minute)
		r.putAged(ruled, 3, 0)
		r.flush()
		time.Sleep(39 * time.Second)
		for _, c := range []*key.Chain{stays, aged, ruled} {
			if m := r.match(c); m.Chunks != 3 {
				t.Errorf("%d of 3 chunks after 39 s", m.Chunks)
			}
		}
		time.Sleep(time.Second)
		r.hides(ruled)
		r.wantIn(aged, 3, 0)
		time.Sleep(20 * time.Second)
		r.hides(aged)
		time.Sleep(swept)
		for _, c := range []*key.Chain{aged, ruled} {
			for i := range c.Len() {
				if k := c.Key(i); r.hot.Has(k) || r.disk.Has(k) || r.Where(k) != 0 {
					t.Errorf("chunk %d is in some tier", i)
				}
			}
		}
		r.wantIn(stays, 3, 0)
		if st := r.Store.Operator.Stats(); st.Aged != 0 || st.AgedOut != 6 {
			t.Errorf("%+v, want 6 removed and none left", st)
		}
		r.putAged(aged, 3, 0) // anew, and for ever
		time.Sleep(time.Hour)
		r.wantIn(aged, 3, 0)
	})
}

// TestOverWhileHeld: chunks that a client holds when their time comes stay as they are
// until the client lets go, and no other gets them.
func TestOverWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := tiertest.Chain(1, 2)
		r.putAged(c, 2, time.Minute)
		refs := make([]tier.Ref, 2)
		if n, err := r.Leases.Hold(ledger.Daemon, ledger.Lease, c, 0, 2, refs); n != 2 {
			t.Fatal(n, err)
		}
		time.Sleep(time.Minute + swept)
		r.hides(c)
		for i, ref := range refs {
			if err := tiertest.CheckPayload(c.Key(i), ref.Block.Bytes()); err != nil {
				t.Error(err)
			}
		}
		r.Leases.Release(ledger.Daemon, ledger.Lease, refs)
	})
}

// TestOverOnADeadDisk: a tier that cannot delete shows nothing that has expired, and deletes
// it when it can.
func TestOverOnADeadDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dead atomic.Bool
		r := newRig(t, options{hook: func(c tierfault.Call) (f tierfault.Fault) {
			if c.Op == tierfault.Delete && dead.Load() {
				f.Err = tier.ErrOff
			}
			return f
		}})
		c := tiertest.Chain(1, 3)
		r.putAged(c, 3, time.Minute)
		r.flush()
		dead.Store(true)
		time.Sleep(time.Minute + swept)
		if !r.disk.Has(c.Key(0)) {
			t.Fatal("the disk deletes")
		}
		r.hides(c)
		time.Sleep(time.Hour)
		r.hides(c)
		dead.Store(false)
		time.Sleep(2 * time.Minute)
		for i := range c.Len() {
			if r.disk.Has(c.Key(i)) {
				t.Errorf("chunk %d is still on disk", i)
			}
		}
	})
}

// TestRenewedElsewhere: what another machine has stored anew in the shared tier stays
// there, and goes here as all that has expired; a shared tier that does not answer keeps
// nothing in the others.
func TestRenewedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := tiertest.Chain(1, 3)
		f := newFar(c)
		f.renewed = map[key.Key]bool{c.Key(1): true}
		f.err = tier.ErrOff
		r := newRig(t, options{remote: f})
		r.putAged(c, 3, time.Minute)
		r.flush()
		time.Sleep(time.Minute + swept)
		r.hides(c)
		for i := range 3 {
			if k := c.Key(i); r.hot.Has(k) || r.disk.Has(k) {
				t.Errorf("chunk %d is still here", i)
			}
		}
		if len(f.deleted) > 0 {
			t.Errorf("deleted, and it cannot be known whether they were stored anew: %v", f.deleted)
		}
		f.mu.Lock()
		f.err = nil
		f.mu.Unlock()
		time.Sleep(2 * time.Minute)
		f.mu.Lock()
		defer f.mu.Unlock()
		if want := []key.Key{c.Key(0), c.Key(2)}; !slices.Equal(f.deleted, want) {
			t.Errorf("deleted in the shared tier: %v, want %v", f.deleted, want)
		}
		if st := r.Store.Operator.Stats(); st.Aged != 0 {
			t.Errorf("%+v, want no expiry left", st)
		}
	})
}

// TestStoredWhileAsked: a chunk that is stored anew while the shared tier is asked about the
// one that has expired stays, whatever the answer.
func TestStoredWhileAsked(t *testing.T) {
	for name, err := range map[string]error{"it answers": nil, "it does not answer": tier.ErrOff} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, anew := tiertest.Chain(1, 1), make(chan func(), 1)
				f := newFar(c)
				f.err = err
				f.asking = func() {
					select {
					case store := <-anew:
						store()
					default:
					}
				}
				r := newRig(t, options{remote: f})
				r.putAged(c, 1, time.Minute)
				r.flush()
				if n, err := r.Remover.Delete(t.Context(), []key.Key{c.Key(0)}); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				f.mu.Lock()
				f.deleted = nil
				f.mu.Unlock()
				anew <- func() { r.putAged(c, 1, 0) }
				time.Sleep(time.Minute + swept)
				f.mu.Lock()
				defer f.mu.Unlock()
				if len(anew) > 0 || r.match(c).Chunks != 1 || len(f.deleted) > 0 {
					t.Errorf("not asked: %d, %d chunks are found, deleted in the shared tier: %v", len(anew), r.match(c).Chunks, f.deleted)
				}
			})
		})
	}
}

// TestOverWhileLoaded: a chunk whose time comes while a tier reads it does not get to DRAM.
func TestOverWhileLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{hook: tierfault.On(tierfault.Get, tierfault.Fault{Delay: 11 * time.Second})})
		c := tiertest.Chain(1, 1)
		r.putAged(c, 1, time.Minute)
		r.flush()
		r.evict()
		time.Sleep(time.Until(time.Unix(time.Now().Unix(), 0).Add(50 * time.Second)))
		if _, _, err := r.Loader.Warm(t.Context(), store.Requester{}, c, 0, tier.All); !errors.Is(err, tier.ErrNotFound) || r.hot.Has(c.Key(0)) {
			t.Errorf("it came up: %v", err)
		}
		r.hides(c)
	})
}

// TestOverInTransit: a chunk whose time comes while it waits to be written is not written.
func TestOverInTransit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{mode: held})
		c := tiertest.Chain(1, 2)
		r.putAged(c, 2, time.Minute)
		time.Sleep(time.Minute)
		r.flush()
		if r.disk.Has(c.Key(0)) || r.disk.Has(c.Key(1)) {
			t.Error("a chunk that has expired was written")
		}
		time.Sleep(swept)
		r.hides(c)
	})
}

// TestBoundIsSetLater: a rule that comes with a reload counts for older chunks too, from
// then on.
func TestBoundIsSetLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := tiertest.Chain(1, 3)
		models := func() map[key.SpaceID]string { return map[key.SpaceID]string{c.Space: "model"} }
		r.Operator.OpenSpace(c.Space, "model")
		defer r.Operator.CloseSpace(c.Space)
		r.putAged(c, 3, 0)
		r.flush()
		time.Sleep(time.Hour)
		if err := r.Operator.SetQuotas([]store.Quota{{Match: "model", MaxAge: time.Minute}}, models); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)
		r.wantIn(c, 3, 0)
		time.Sleep(time.Second)
		r.hides(c)
		time.Sleep(swept)
		r.putAged(c, 3, 0)
		time.Sleep(30 * time.Second)
		if err := r.Operator.SetQuotas(nil, models); err != nil {
			t.Fatal(err)
		}
		later := tiertest.Chain(2, 1)
		r.putAged(later, 1, 0)
		time.Sleep(time.Hour)
		r.hides(c)
		r.wantIn(later, 1, 0)
	})
}

// TestAgesAgainstAModel: random chunks with random bounds, deleted, evicted and stored
// anew: a chunk is found exactly while it is there and not over.
func TestAgesAgainstAModel(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			r := newRig(t, options{})
			const chains = 30
			ends := map[int]time.Time{} // of those that are there; zero = never
			for range 600 {
				i := rng.IntN(chains)
				c := tiertest.Chain(uint64(i), 1)
				end, there := ends[i]
				over := there && !end.IsZero() && !time.Now().Before(end)
				switch rng.IntN(6) {
				case 0:
					d := time.Duration(rng.IntN(4)) * time.Duration(rng.IntN(60)) * time.Second
					grants, err := r.reserve(ledger.Daemon, c, 0, 1, size)
					if err != nil || grants[0].Status != store.Granted {
						break // there, or being removed
					}
					r.Filler.Commit(c, 0, fill(c, 0, grants), d, make([]bool, 1))
					if ends[i] = (time.Time{}); d > 0 {
						ends[i] = time.Unix(time.Now().Unix(), 0).Add(d)
					}
				case 1:
					if _, err := r.Remover.Delete(t.Context(), []key.Key{c.Key(0)}); err != nil {
						t.Fatal(err)
					}
					delete(ends, i)
				case 2:
					r.flush()
					r.evict()
				case 3:
					time.Sleep(time.Duration(rng.IntN(9000)) * time.Millisecond)
				default:
					if n := r.match(c).Chunks; n > 0 && over || n == 0 && there && !over {
						t.Fatalf("seed %d: chunk %d: %d found, there %t, over %t", seed, i, n, there, over)
					}
					if err := r.load(c, 0); (err == nil) != (there && !over) {
						t.Fatalf("seed %d: chunk %d: load: %v, there %t, over %t", seed, i, err, there, over)
					}
				}
			}
			time.Sleep(4 * time.Minute)
			for i, end := range ends {
				if k := tiertest.Chain(uint64(i), 1).Key(0); !end.IsZero() && (r.hot.Has(k) || r.disk.Has(k)) {
					t.Errorf("chunk %d is still there", i)
				}
			}
		})
	}
}

// TestExpiriesOfWhatIsGone: chunks that are evicted before their time leave nothing behind,
// however long that is, also where they come faster than the looks for them.
func TestExpiriesOfWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{lone: true, capacity: mib})
		const each = 70
		refs := make([]tier.Ref, each)
		for i := range uint64(70_000 / each) {
			c := tiertest.Chain(i, each)
			grants, err := r.reserve(ledger.Daemon, c, 0, each, 8)
			if err != nil {
				t.Fatal(err)
			}
			for i, g := range grants {
				g.Ref.Block.Seal()
				refs[i] = g.Ref
			}
			r.Filler.Commit(c, 0, refs, 24*time.Hour, make([]bool, each))
		}
		if n := r.Store.Operator.Stats().Aged; n != 70_000 {
			t.Fatalf("%d expiries", n)
		}
		time.Sleep(15 * time.Second)
		if n := r.Store.Operator.Stats().Aged; n > 300 {
			t.Errorf("%d expiries are left, of at most 256 chunks", n)
		}
	})
}
