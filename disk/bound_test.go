package disk

import (
	"errors"
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

var churnPuts = flag.Int("churn", 60, "how many payloads each writer of TestCapacityAtEverySample and TestCapacityOfDatabase stores; 20000 for a long run, which takes larger ones")

// churnLong says that a run is a long one.
func churnLong() bool { return *churnPuts >= 1000 }

// However sizes mix, what the directory occupies never exceeds the capacity,
// sampled all the time while several write, evict and delete.
func TestCapacityAtEverySample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		o.CapacityBytes, o.MetaReserveBytes, o.SegmentBytes = 40*mib, 12*mib, 4*mib
		largest := 10 // to 2 MiB
		if churnLong() {
			o.CapacityBytes, o.SegmentBytes, largest = 256*mib, 64*mib, 14
		}
		d, _ := start(t, o, nil)
		m := newMemory(t)
		var g sync.WaitGroup
		for w := range 3 {
			g.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(w), 9))
				for n := range *churnPuts {
					churnMixed(t, d, m, rng, 3*n+w, 4096<<rng.IntN(largest))
				}
			})
		}
		var over atomic.Bool
		go func() { g.Wait(); over.Store(true) }()
		samples, most := 0, int64(0)
		for !over.Load() {
			samples++
			most = max(most, occupied(o.Paths[0]))
		}
		t.Logf("%d samples, at most %d MiB of %d; %d puts", samples, most/mib, o.CapacityBytes/mib, d.Stats().Puts)
		if most > o.CapacityBytes {
			t.Errorf("%d bytes were in use at some time; the capacity is %d", most, o.CapacityBytes)
		}
		if d.Stats().Evictions == 0 || d.Stats().Puts < 10 {
			t.Error("nothing much happened")
		}
	})
}

// churnMixed stores key i, evicting as often as it takes, and now and then deletes one.
func churnMixed(t *testing.T, d *rig, m memory, rng *rand.Rand, i, n int) {
	b, err := m.Alloc(t.Context(), n)
	if err != nil {
		return // the others have it
	}
	defer b.Release()
	e := tier.Entry{Record: tier.Record{Key: keyOf(i), Tokens: 256, Size: uint32(n), Sum: b.Seal()}, Block: b}
	for range 20 {
		if err = d.Put(t.Context(), e); !errors.Is(err, tier.ErrNoSpace) {
			break
		}
		_, _ = d.Trim(t.Context(), int64(n), nil)
	}
	if err != nil && !errors.Is(err, tier.ErrNoSpace) {
		t.Errorf("put %d bytes: %v", n, err)
	}
	if rng.IntN(10) == 0 {
		_ = d.Delete(t.Context(), []key.Key{keyOf(rng.IntN(i + 1))})
	}
}

// On a file system that is smaller than the capacity puts end with ErrNoSpace
// or find room by eviction; nothing hangs, nothing is wrong, and room that
// others give back is used.
func TestFullFileSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		o.CapacityBytes, o.MetaReserveBytes, o.SegmentBytes = 1<<30, 32*mib, 4*mib
		fs := newSmall(t, &o, 72*mib)
		fs.others.Store(20 * mib)
		d, stop := start(t, o, fs)
		defer stop()
		m := newMemory(t)
		const puts, size = 100, mib / 2
		churn := func() (stored int) {
			for i := range puts {
				if putOrTrim(t, d, m, i, size, func([]key.Key) {}) {
					mustGet(t, d, m, i, size)
					stored++
				}
				if _, err := d.Trim(t.Context(), 0, nil); err != nil {
					wantErr(t, err, tier.ErrNoSpace)
				}
			}
			return stored
		}
		full := churn()
		before := d.Stats().Entries
		fs.others.Store(0)
		if err := d.instance.lookAll(); err != nil { // the maintenance does so every second
			t.Fatal(err)
		}
		if stored := churn(); stored < puts {
			t.Errorf("%d of %d were stored with room", stored, puts)
		}
		t.Logf("%d of %d stored while full, %d entries; %d with room", full, puts, before, d.Stats().Entries)
		if d.Stats().Entries <= before || before == 0 {
			t.Errorf("%d entries with more room, %d before", d.Stats().Entries, before)
		}
		checkBooks(t, d)
	})
}
