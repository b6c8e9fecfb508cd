package store_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// far is a shared tier whose chunks a test names. It keeps no bytes.
type far struct {
	tier.Tier               // nil: what is not below is not called
	steps     []int         // what Find tells on its way
	each      time.Duration // for each step
	err       error
	asked     []int // how many keys each Find was about
	renewed   map[key.Key]bool
	asking    func() // called by Renewed; nil is not

	mu      sync.Mutex // guards what follows
	absent  map[key.Key]bool
	has     map[key.Key]bool
	deleted []key.Key
}

func newFar(c *key.Chain, has ...[2]int) *far {
	f := &far{absent: make(map[key.Key]bool), has: make(map[key.Key]bool)}
	for _, run := range has {
		for i := run[0]; i < run[1]; i++ {
			f.has[c.Key(i)] = true
		}
	}
	return f
}

func (f *far) Name() string { return "remote" }

func (f *far) Stats() tier.Stats { return tier.Stats{} }

func (f *far) Get(context.Context, key.Key, tier.Allocator) (arena.Block, error) {
	return arena.Block{}, tier.ErrNotFound
}

func (f *far) Put(context.Context, tier.Entry) error { return nil }

func (f *far) Delete(_ context.Context, ks []key.Key) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deleted = append(f.deleted, ks...)
	return nil
}

func (f *far) Absent(k key.Key) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.absent[k]
}

func (f *far) Renewed(_ context.Context, ks []key.Key, is []bool) error {
	if f.asking != nil {
		f.asking()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, k := range ks {
		is[i] = f.renewed[k]
	}
	return f.err
}

func (f *far) Purge(context.Context, key.SpaceID, string, bool, func(key.Key)) (tier.Purged, error) {
	return tier.Purged{}, nil
}

func (f *far) Find(ctx context.Context, ks []key.Key, found func(int)) (int, error) {
	f.asked = append(f.asked, len(ks))
	for _, n := range f.steps {
		select {
		case <-time.After(f.each):
			found(n)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	n := 0
	for n < len(ks) && f.has[ks[n]] {
		n++
	}
	return n, f.err
}

// rest returns the scan behind the known part of c. At the end of the test c is
// deleted: the rig does not know the chunks of a far tier.
func (r *rig) rest(c *key.Chain) *store.RemoteScan {
	r.t.Helper()
	r.t.Cleanup(func() {
		if _, err := r.Remover.Delete(context.Background(), tiertest.Keys(c, 0, c.Len())); err != nil {
			r.t.Error(err)
		}
	})
	rest, _ := r.scan(c, tier.All)
	return rest
}

// scan is the scan behind the known part of c, and why there is none.
func (r *rig) scan(c *key.Chain, search tier.Set) (*store.RemoteScan, error) {
	r.t.Helper()
	return r.Lookups.ScanRemote(c, c.Skip+r.match(c).Chunks, search)
}

// TestRestNil: where nothing can be beyond the known part no tier is asked.
func TestRestNil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := tiertest.Chain(1, 4)
		f := newFar(c, [2]int{0, 4})
		r := newRig(t, options{remote: f, disk: tiertest.NewMemory("disk", mib)})
		if rest, err := r.scan(c, tier.Of(tier.CPU)|tier.Of(tier.Disk)); rest != nil || err != nil {
			t.Error("the search leaves the remote tier out")
		}
		f.absent[c.Key(0)] = true
		if r.rest(c) != nil {
			t.Error("the next chunk was absent a moment ago")
		}
		clear(f.absent)
		if r.rest(c) == nil {
			t.Error("nothing is known, and nobody is asked")
		}
		r.put(c, 0, 4, size)
		if r.rest(c) != nil {
			t.Error("all is known")
		}
		if newRig(t, options{}).rest(c) != nil {
			t.Error("there is no remote tier")
		}
		off := tier.WithBreaker(f, tier.BreakerOptions{Failures: 1})
		f.err = errors.New("broken")
		r = newRig(t, options{remote: off})
		rest, err := r.scan(c, tier.All)
		if err != nil {
			t.Fatal(err)
		}
		rest.Find(t.Context())
		if rest, err := r.scan(c, tier.All); rest != nil || !errors.Is(err, tier.ErrOff) {
			t.Errorf("%v, %v; the remote tier is switched off", rest, err)
		}
	})
}

// TestRestFinds the chunks that only the shared tier has, and those that go on
// behind them in a near one.
func TestRestFinds(t *testing.T) {
	c := tiertest.Chain(1, 12)
	synctest.Test(t, func(t *testing.T) {
		f := newFar(c, [2]int{2, 5}, [2]int{8, 10})
		disk := tiertest.NewMemory("disk", 4*mib)
		putInto(t, disk, c, 0, 2)
		putInto(t, disk, c, 5, 8)
		r := newRig(t, options{remote: f, disk: disk})
		synctest.Wait() // until the disk is scanned
		rest := r.rest(c)
		if rest == nil || rest.Found() != 2 {
			t.Fatalf("rest begins at %+v; want 2", rest)
		}
		rest.Find(t.Context())
		if rest.Found() != 10 || !rest.Reach(t.Context(), 9) || rest.Reach(t.Context(), 10) {
			t.Errorf("found %d; want 10", rest.Found())
		}
		if m := r.match(c); m.Chunks != 10 || m.In[tier.Remote].Chunks != 5 || m.In[tier.Disk].Chunks != 5 {
			t.Errorf("the index has %+v", m)
		}
		if !slices.Equal(f.asked, []int{10, 4}) {
			t.Errorf("asked about %v chunks; want 10, then the 4 behind those on disk", f.asked)
		}
	})
}

// putInto puts chunks from..to of c into a tier.
func putInto(t *testing.T, to tier.Tier, c *key.Chain, from, end int) {
	t.Helper()
	a, err := arena.New(arena.Options{CapacityBytes: mib})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for i := from; i < end; i++ {
		e := tiertest.NewEntry(t, a, c, i, size)
		if err := to.Put(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		e.Block.Release()
	}
}

// TestRestReach: who waits for a chunk hears of it as soon as it is certain,
// and at the end that there is no more.
func TestRestReach(t *testing.T) {
	c := tiertest.Chain(1, 8)
	synctest.Test(t, func(t *testing.T) {
		f := newFar(c, [2]int{0, 6})
		f.steps, f.each = []int{2, 4}, time.Second
		r := newRig(t, options{remote: f})
		rest := r.rest(c)
		start := time.Now()
		var g sync.WaitGroup
		for i, want := range []time.Duration{1, 1, 2, 2, 2, 2, 2, 2} {
			g.Go(func() {
				if got := rest.Reach(t.Context(), i); got != (i < 6) || time.Since(start) != want*time.Second {
					t.Errorf("chunk %d: %t after %v; want %t after %v", i, got, time.Since(start), i < 6, want*time.Second)
				}
			})
		}
		g.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if rest.Reach(ctx, 0) {
				t.Error("a chunk is there before anybody knows")
			}
		})
		rest.Find(t.Context())
		g.Wait()
	})
}

// TestRestFails: an error ends the prefix behind the chunks that were found.
func TestRestFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := tiertest.Chain(1, 8)
		f := newFar(c)
		f.steps, f.err = []int{3}, errors.New("broken")
		r := newRig(t, options{remote: f})
		rest := r.rest(c)
		rest.Find(t.Context())
		if rest.Found() != 3 || rest.Reach(t.Context(), 3) {
			t.Errorf("found %d; want 3", rest.Found())
		}
	})
}

// TestRestContradicts: a chunk that the index knows below another one than the chain
// does is found all the same, and those behind it.
func TestRestContradicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, c := tiertest.Chain(1, 4), tiertest.Chain(2, 4)
		c.Space, c.Chained = known.Space, false
		c.Hashes[2] = known.Hashes[3]
		f := newFar(c, [2]int{0, 4})
		r := newRig(t, options{remote: f})
		r.put(known, 0, 4, size)
		rest := r.rest(c)
		rest.Find(t.Context())
		if !rest.Reach(t.Context(), 3) {
			t.Error("a contradiction ended the prefix")
		}
		if m := r.match(known); m.Chunks != 4 {
			t.Errorf("the known chain has %d chunks now", m.Chunks)
		}
	})
}
