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
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// diskOnly makes a rig with a chain of n chunks that is only on disk.
func diskOnly(t *testing.T, n int, o options) (*rig, *key.Chain) {
	t.Helper()
	r := newRig(t, o)
	c := r.putChain(1, n)
	r.flush()
	r.evict()
	r.wantIn(c, 0, n)
	return r, c
}

func TestLoadRoom(t *testing.T) {
	for limit, want := range map[int64]int64{0: 4 * mib, mib: mib, 8 * mib: 4 * mib} {
		synctest.Test(t, func(t *testing.T) {
			if got := newRig(t, options{limits: ledger.Limits{Load: limit}}).Loader.LoadRoom(); got != want {
				t.Errorf("with a limit of %d: %d; want %d", limit, got, want)
			}
		})
	}
}

// A chunk larger than the budget of loads is loaded all the same, one at a time.
func TestLargeLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const large = mib
		r := newRig(t, options{limits: ledger.Limits{Load: large / 2}})
		c := tiertest.Chain(1, 2)
		r.put(c, 0, 2, large)
		r.flush()
		r.evict()
		r.wantIn(c, 0, 2)
		var both sync.WaitGroup
		for i := range 2 {
			both.Go(func() {
				if err := r.load(c, i); err != nil {
					t.Errorf("chunk %d: %v", i, err)
				}
			})
		}
		both.Wait()
		r.wantIn(c, 2, 0)
	})
}

func TestLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := diskOnly(t, 4, options{})
		for _, i := range []int{0, 2, 1, 3} {
			ref, from, err := r.Loader.Load(t.Context(), store.Requester{Owner: ledger.Daemon}, c, i, tier.All)
			if err != nil || from != tier.Disk {
				t.Fatalf("load chunk %d: from %s, error %v", i, from, err)
			}
			if err := tiertest.CheckPayload(c.Key(i), ref.Block.Bytes()); err != nil {
				t.Error(err)
			}
			r.Leases.Release(ledger.Daemon, ledger.Lease, []tier.Ref{ref})
		}
		r.wantIn(c, 4, 0)
		ref, from, err := r.Loader.Load(t.Context(), store.Requester{Owner: ledger.Daemon}, c, 2, tier.All)
		if err != nil || from != tier.CPU {
			t.Fatalf("again: from %s, error %v; want cpu", from, err)
		}
		r.Leases.Release(ledger.Daemon, ledger.Lease, []tier.Ref{ref})
		st := r.Store.Operator.Stats()
		if got, want := st.Loads[tier.Disk], (writeback.Volume{Chunks: 4, Bytes: 4 * size}); got != want {
			t.Errorf("loaded %+v; want %+v", got, want)
		}
		r.evict()
		r.wantWritten(4, nil) // what came from below is not written again
		r.wantIn(c, 0, 4)
	})
}

// TestLoadsAreTimed: each chunk that a client waited for is timed once, by the tier that it
// came from, with the time that it waited for its turn; what DRAM has is not, nor is what
// nobody has.
func TestLoadsAreTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var took []time.Duration
		r, c := diskOnly(t, 3, options{
			hook:  tierfault.On(tierfault.Get, tierfault.Fault{Delay: time.Second}),
			loads: [tier.Places]tier.Limit{tier.Disk: {Loads: 1}},
			loaded: func(from tier.Place, d time.Duration) {
				if from != tier.Disk {
					t.Errorf("timed from %v", from)
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, d)
			},
		})
		var loads sync.WaitGroup
		for i := range 3 {
			loads.Go(func() {
				if err := r.load(c, i); err != nil {
					t.Error(err)
				}
			})
		}
		loads.Wait()
		for _, again := range []func() error{
			func() error { return r.load(c, 0) },
			func() error { _ = r.load(tiertest.Chain(7, 1), 0); return nil },
		} {
			if err := again(); err != nil {
				t.Error(err)
			}
		}
		slices.Sort(took)
		if want := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}; !slices.Equal(took, want) {
			t.Errorf("three loads, one at a time, took %v, want %v", took, want)
		}
	})
}

func TestLoadMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := diskOnly(t, 1, options{})
		if err := r.load(tiertest.Chain(7, 1), 0); !errors.Is(err, tier.ErrNotFound) {
			t.Errorf("what nobody has: %v", err)
		}
		_, _, err := r.Loader.Load(t.Context(), store.Requester{Owner: ledger.Daemon}, c, 0, tier.Of(tier.CPU)|tier.Of(tier.Remote))
		if !errors.Is(err, tier.ErrNotFound) {
			t.Errorf("outside the search range: %v", err)
		}
	})
}

func TestLoadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := diskOnly(t, 1, options{hook: tierfault.On(tierfault.Get, tierfault.Fault{Delay: time.Second})})
		before := r.disk.Stats().Gets
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				o := r.Leases.NewOwner()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i%5 == 1 { // some lose interest, the first one too
					ctx, cancel = context.WithTimeout(ctx, 500*time.Millisecond)
					defer cancel()
				}
				err := r.loadAs(ctx, o, c, 0)
				if i%5 == 1 && !errors.Is(err, context.DeadlineExceeded) || i%5 != 1 && err != nil {
					t.Errorf("load %d: %v", i, err)
				}
				r.Leases.CloseOwner(o)
			})
		}
		wg.Wait()
		if n := r.disk.Stats().Gets - before; n != 1 {
			t.Errorf("the disk was read %d times; want once", n)
		}
	})
}

func TestLoadFallsThrough(t *testing.T) {
	for name, err := range map[string]error{"failing": errors.New("device gone"), "off": tier.ErrOff, "lost": tier.ErrNotFound} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				remote := tiertest.NewMemory("remote", 64*mib)
				r, c := diskOnly(t, 2, options{remote: remote, hook: tierfault.On(tierfault.Get, tierfault.Fault{Err: err})})
				ref, from, lerr := r.Loader.Load(t.Context(), store.Requester{Owner: ledger.Daemon}, c, 0, tier.All)
				if lerr != nil || from != tier.Remote {
					t.Fatalf("load: from %s, error %v; want it from remote", from, lerr)
				}
				r.Leases.Release(ledger.Daemon, ledger.Lease, []tier.Ref{ref})
				_, _, lerr = r.Loader.Load(t.Context(), store.Requester{Owner: ledger.Daemon}, c, 1, tier.Of(tier.Disk))
				var le *store.LoadError
				if !errors.Is(lerr, err) || !errors.As(lerr, &le) || le.Place != tier.Disk {
					t.Errorf("from disk only: %v; want what the disk said", lerr)
				}
				if n := r.Store.Operator.Stats().LoadFailed[tier.Disk]; n != 2 {
					t.Errorf("%d failed loads counted; want 2", n)
				}
			})
		})
	}
}

// Wrong bytes on disk end the prefix there, in the index too.
func TestLoadCorrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := diskOnly(t, 3, options{})
		r.disk.Damage(c.Key(1))
		if err := r.load(c, 1); !errors.Is(err, tier.ErrCorrupt) {
			t.Errorf("got %v; want that it is corrupt", err)
		}
		r.wantIn(c, 0, 1)
		r.put(c, 1, 2, size) // rejoins what is below
		if m := r.match(c); m.Chunks != 3 {
			t.Errorf("after storing it again %d chunks are found; want 3", m.Chunks)
		}
		r.flush()
	})
}

// unbounded hides what a bounded tier has more, as an object store is seen.
type unbounded struct{ tier.Tier }

// A chunk that others have deleted from the object store ends the prefix there,
// and the chunks behind it count again once it is stored again.
func TestLoadGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone key.Key
		remote := tierfault.Wrap(tiertest.NewMemory("remote", 64*mib), func(c tierfault.Call) tierfault.Fault {
			if c.Op == tierfault.Get && c.Keys[0] == gone {
				return tierfault.Fault{Err: tier.ErrNotFound}
			}
			return tierfault.Fault{}
		})
		r := newRig(t, options{lone: true, remote: unbounded{remote}})
		c := r.putChain(1, 4)
		r.flush()
		r.evict()
		if m := r.match(c); m.In[tier.Remote].Chunks != 4 || m.Hot != 0 {
			t.Fatalf("matched %+v; want 4 in remote", m)
		}
		gone = c.Key(1)
		if err := r.load(c, 0); err != nil {
			t.Error(err)
		}
		if err := r.load(c, 1); !errors.Is(err, tier.ErrNotFound) {
			t.Errorf("got %v; want that it is gone", err)
		}
		if m := r.match(c); m.Chunks != 1 {
			t.Errorf("with a hole %d chunks are found; want 1", m.Chunks)
		}
		gone = key.Key{}
		r.put(c, 1, 2, size) // rejoins what is below
		if m := r.match(c); m.Hot != 2 || m.In[tier.Remote].Chunks != 2 {
			t.Errorf("after storing it again: %+v; want 2 in DRAM, 2 in remote", m)
		}
		r.flush()
		r.evict()
		for i := range 4 {
			if err := r.load(c, i); err != nil {
				t.Errorf("load chunk %d: %v", i, err)
			}
		}
	})
}

func TestLoadCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := diskOnly(t, 2, options{hook: tierfault.On(tierfault.Get, tierfault.Fault{Hang: true})})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.loadAs(ctx, ledger.Daemon, c, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled before: %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.loadAs(ctx, ledger.Daemon, c, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a tier that hangs: %v", err)
		}
		synctest.Wait()
		r.checkRest() // the fetch nobody waits for has ended too
	})
}

// A load waits for room while DRAM is leased, and is woken when it is not.
func TestLoadWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := diskOnly(t, 1, options{capacity: 4 * size})
		o := r.Leases.NewOwner()
		grants, err := r.reserve(o, tiertest.Chain(2, 4), 0, 4, size)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.loadAs(ctx, ledger.Daemon, c, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without room: %v", err)
		}
		done := make(chan error)
		go func() { done <- r.load(c, 0) }()
		synctest.Wait()
		r.Filler.Abort([]tier.Ref{grants[3].Ref})
		if err := <-done; err != nil {
			t.Errorf("with room again: %v", err)
		}
		for _, g := range grants[:3] {
			r.Filler.Abort([]tier.Ref{g.Ref})
		}
		r.Leases.CloseOwner(o)
	})
}

func TestLoadOverBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{limits: ledger.Limits{Lease: size}})
		c := tiertest.Chain(1, 2)
		r.put(c, 0, 1, size)
		r.put(c, 1, 2, size)
		r.flush()
		if err := r.hot.Delete(t.Context(), tiertest.Keys(c, 0, 2)); err != nil {
			t.Fatal(err)
		}
		o := r.Leases.NewOwner()
		ref, _, err := r.Loader.Load(t.Context(), store.Requester{Owner: o}, c, 0, tier.All)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.loadAs(t.Context(), o, c, 1); !errors.Is(err, tier.ErrOverBudget) {
			t.Errorf("above its own limit: %v", err)
		}
		r.Leases.Release(o, ledger.Lease, []tier.Ref{ref})
		r.Leases.CloseOwner(o)
		r.wantIn(c, 2, 0) // it came up, and stays cached
	})
}

// Some leased chunk is hashed again; a wrong one ends the run and
// is dropped, and the copy below takes its place.
func TestVerifyHits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{verify: 1})
		c := r.putChain(1, 4)
		r.flush()
		r.flip(c, 2)
		refs := make([]tier.Ref, 4)
		n, err := r.Leases.Hold(ledger.Daemon, ledger.Lease, c, 0, 4, refs)
		if n != 2 || err != nil {
			t.Fatalf("held %d, error %v; want the 2 before the wrong one", n, err)
		}
		if slices.ContainsFunc(refs[2:], tier.Ref.Valid) {
			t.Error("references behind the end of the run are not cleared")
		}
		r.Leases.Release(ledger.Daemon, ledger.Lease, refs[:2])
		if m := r.match(c); m.Chunks != 4 || m.Hot != 2 {
			t.Errorf("found %+v; want all 4, 2 of them ready", m)
		}
		if err := r.load(c, 2); err != nil {
			t.Error(err)
		}
		if n := r.Store.Operator.Stats().Corrupt; n != 1 {
			t.Errorf("%d chunks counted as corrupt; want 1", n)
		}
	})
}

// A tier that lies is found out too.
func TestVerifyLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := diskOnly(t, 1, options{verify: 1, hook: tierfault.At(tierfault.Get, 0, tierfault.Fault{Corrupt: true})})
		if err := r.load(c, 0); err == nil {
			t.Error("wrong bytes were leased")
		}
		if err := r.load(c, 0); err != nil {
			t.Errorf("second try: %v", err)
		}
	})
}

func TestLoadWhileClientFills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := diskOnly(t, 2, options{})
		if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(c, 1, 2)); err != nil {
			t.Fatal(err)
		}
		grants, err := r.reserve(ledger.Daemon, c, 1, 2, size)
		if err != nil {
			t.Fatal(err)
		}
		e := tiertest.NewEntry(t, r.arena, c, 1, size)
		if err := r.disk.Put(t.Context(), e); err != nil { // it turns up below meanwhile
			t.Fatal(err)
		}
		e.Block.Release()
		if err := r.load(c, 1); !errors.Is(err, tier.ErrNotFound) && !errors.Is(err, tier.ErrNoSpace) {
			t.Errorf("got %v; want a miss or no space", err)
		}
		commit(r.Store, c, 1, fill(c, 1, []store.Grant{grants[0]}))
		r.flush()
		if err := r.load(c, 1); err != nil {
			t.Error(err)
		}
	})
}

// A chunk that a client has stored while it was in flight is there: the load
// takes the stored one.
func TestLoadMeetsResident(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r, c := diskOnly(t, 1, options{hook: tierfault.On(tierfault.Get, tierfault.Fault{Until: gate})})
		done := make(chan error)
		go func() { done <- r.load(c, 0) }()
		synctest.Wait()
		e := tiertest.NewEntry(t, r.arena, c, 0, size)
		if err := r.hot.Put(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		e.Block.Release()
		close(gate)
		if err := <-done; err != nil {
			t.Errorf("load of what is in DRAM meanwhile: %v", err)
		}
		if n := r.Store.Operator.Stats().LoadFailed[tier.Disk]; n != 0 {
			t.Errorf("%d failed loads counted; want none", n)
		}
		if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(c, 0, 1)); err != nil { // the index was not told of the Put
			t.Error(err)
		}
	})
}

// A tier takes so many loads at a time; those of other clients do not wait
// for all that one has asked for before.
func TestLoadsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options{hook: tierfault.On(tierfault.Get, tierfault.Fault{Delay: time.Second})}
		o.loads[tier.Disk] = tier.Limit{Loads: 2}
		r, c := diskOnly(t, 41, o)
		start := time.Now()
		var wg sync.WaitGroup
		greedy, modest := r.Leases.NewOwner(), r.Leases.NewOwner()
		for i := range 40 {
			wg.Go(func() {
				if err := r.loadAs(t.Context(), greedy, c, i); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if err := r.loadAs(t.Context(), modest, c, 40); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("one chunk beside 40 took %s; want to be next, after 2 s", d)
		}
		wg.Wait()
		if d := time.Since(start); d != 21*time.Second {
			t.Errorf("41 chunks, 2 at a time, took %s; want 21 s", d)
		}
		r.Leases.CloseOwner(greedy)
		r.Leases.CloseOwner(modest)
	})
}

// A load in no hurry, that waits while others are in one, takes the turn of
// an urgent load that joins it.
func TestHurryJoinsIdle(t *testing.T) {
	for name, hurriedFirst := range map[string]bool{"joins": false, "is there already": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := options{hook: tierfault.On(tierfault.Get, tierfault.Fault{Delay: time.Second})}
				o.loads[tier.Disk] = tier.Limit{Loads: 1}
				r, c := diskOnly(t, 22, o)
				greedy, modest := r.Leases.NewOwner(), r.Leases.NewOwner()
				var wg sync.WaitGroup
				loadBy := func(by store.Requester, i int) {
					ref, _, err := r.Loader.Load(t.Context(), by, c, i, tier.All)
					if err != nil {
						t.Error(err)
						return
					}
					r.Leases.Release(by.Owner, ledger.Lease, []tier.Ref{ref})
				}
				for i := range 20 {
					wg.Go(func() { loadBy(store.Requester{Owner: greedy}, i) })
				}
				synctest.Wait()
				idle := func() { loadBy(store.Requester{Owner: ledger.Daemon, Idle: true}, 20) }
				start := time.Now()
				if !hurriedFirst {
					wg.Go(idle)
					synctest.Wait()
				}
				done := make(chan struct{})
				go func() { loadBy(store.Requester{Owner: modest}, 20); close(done) }()
				synctest.Wait()
				if hurriedFirst {
					wg.Go(idle)
				}
				<-done
				if d := time.Since(start); d != 2*time.Second {
					t.Errorf("one chunk beside 20 took %s; want to be next, after 2 s", d)
				}
				wg.Go(func() { loadBy(store.Requester{Owner: ledger.Daemon, Idle: true}, 21) })
				wg.Wait()
				if d := time.Since(start); d != 22*time.Second {
					t.Errorf("22 chunks, one at a time, took %s; want 22 s", d)
				}
				r.Leases.CloseOwner(greedy)
				r.Leases.CloseOwner(modest)
			})
		})
	}
}
