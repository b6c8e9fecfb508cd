package disk

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// churn is a load of payloads of sizes of one kind.
type churn struct {
	name   string
	inline int64 // Options.InlineMax
	size   func(*rand.Rand) int
}

var churns = []churn{
	{"one byte", 4096, func(*rand.Rand) int { return 1 }},
	{"all in the database", 4096, func(r *rand.Rand) int { return 1 + r.IntN(4096) }},
	{"largest values", metadata.MaxInlineBytes, func(*rand.Rand) int { return metadata.MaxInlineBytes }},
	{"smallest extents", 0, func(*rand.Rand) int { return 1 }},
	{"mixed", 4096, func(r *rand.Rand) int { return 1 + r.IntN(1<<(1+r.IntN(20))) }},
}

// The bytes that the folder occupies never exceed the capacity, however large
// the files of the database grow: small payloads and large ones, deletions, a
// restart amid that and another load behind it. Entries go only by eviction.
func TestCapacityOfDatabase(t *testing.T) {
	for i, c := range churns {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &churnRun{o: testOptions(tiertest.Folder(t)), m: newMemory(t)}
				r.o.CapacityBytes, r.o.MetaReserveBytes = 32*mib, 0
				if churnLong() {
					r.o.CapacityBytes = 128 * mib
				}
				r.o.InlineMax = c.inline
				next := churns[(i+1)%len(churns)]
				next.inline = c.inline
				r.run(t, c, nil)
				survived := r.run(t, next, r.kept)
				r.empty(t)
				t.Logf("%d samples, at most %.2f of %d MiB; %d puts, %d without room; %d recovered", r.samples, float64(r.most)/mib, r.o.CapacityBytes/mib, r.puts.Load(), r.full.Load(), survived)
				if r.most > r.o.CapacityBytes {
					t.Errorf("%d bytes were in use at some time; the capacity is %d", r.most, r.o.CapacityBytes)
				}
				if 20*r.full.Load() > r.puts.Load() {
					t.Error("there was no room far too often")
				}
			})
		})
	}
}

// churnRun is one folder under several loads, one after the other.
type churnRun struct {
	o          Options
	m          memory
	puts, full atomic.Int64
	next       atomic.Int64 // number of the next key

	mu      sync.Mutex
	samples int
	most    int64
	kept    map[key.Key]int  // sizes of the stored payloads
	under   map[key.Key]bool // whose Put has not ended
}

// sample looks at the folder.
func (r *churnRun) sample() {
	bytes := occupied(r.o.Paths[0])
	r.mu.Lock()
	defer r.mu.Unlock()
	r.samples++
	r.most = max(r.most, bytes)
}

// run opens the tier, expects what an earlier run kept, loads it, and closes it.
func (r *churnRun) run(t *testing.T, c churn, want map[key.Key]int) (recovered int) {
	d, stop := start(t, r.o, nil)
	defer stop()
	got := recoverAll(t, d)
	for k, n := range want {
		if int(got[k].Size) != n {
			t.Fatalf("a payload of %d bytes came back with %d", n, got[k].Size)
		}
	}
	r.kept = maps.Clone(want)
	if r.kept == nil {
		r.kept = make(map[key.Key]int)
	}
	r.under = make(map[key.Key]bool)
	var g sync.WaitGroup
	for w := range 4 {
		g.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 9))
			for n := range *churnPuts {
				r.step(t, d, c, rng)
				time.Sleep(time.Millisecond) // the database compacts from time to time
				if n%4 == w {
					r.sample()
				}
			}
		})
	}
	g.Wait()
	recount(t, d)
	if n := int(d.Stats().Entries); n != len(r.kept) {
		t.Errorf("%d entries, want %d", n, len(r.kept))
	}
	return len(got)
}

// empty deletes all there is.
func (r *churnRun) empty(t *testing.T) {
	d, stop := start(t, r.o, nil)
	defer stop()
	recoverAll(t, d)
	if err := d.Delete(context.Background(), slices.Collect(maps.Keys(r.kept))); err != nil {
		t.Error(err)
	}
	recount(t, d)
	if n := d.Stats().Entries; n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// step stores one payload, as the store does, and deletes one now and then.
func (r *churnRun) step(t *testing.T, d *rig, c churn, rng *rand.Rand) {
	ctx := context.Background()
	i, n := int(r.next.Add(1)), c.size(rng)
	e := entryOf(t, r.m, i, n)
	defer e.Block.Release()
	r.mu.Lock()
	r.kept[e.Key], r.under[e.Key] = n, true
	r.mu.Unlock()
	forget := func(ks ...key.Key) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, k := range ks {
			delete(r.kept, k)
		}
	}
	var err error
	for range 4 {
		if err = d.Put(ctx, e); !errors.Is(err, tier.ErrNoSpace) {
			break
		}
		out, _ := d.Trim(ctx, int64(n), nil)
		forget(out...)
	}
	switch {
	case errors.Is(err, tier.ErrNoSpace):
		r.full.Add(1)
		forget(e.Key)
	case err != nil:
		t.Errorf("put %d bytes: %v", n, err)
	default:
		r.puts.Add(1)
	}
	r.mu.Lock()
	delete(r.under, e.Key)
	k := keyOf(rng.IntN(i + 1))
	whole := !r.under[k] // a Put that a Delete overtakes stores the chunk after it
	r.mu.Unlock()
	if whole && rng.IntN(10) == 0 {
		if err := d.Delete(ctx, []key.Key{k}); err != nil {
			t.Errorf("delete: %v", err)
		}
		forget(k)
	}
}
