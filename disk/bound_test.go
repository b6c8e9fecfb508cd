package disk

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

var churnFor = flag.Duration("churn", time.Second, "how long TestCapacityAtEverySample goes on; 2m for a long run")

// However sizes mix, what the directory occupies never exceeds the capacity,
// sampled all the time while several write, evict and delete.
func TestCapacityAtEverySample(t *testing.T) {
	o := testOptions(t.TempDir())
	o.CapacityBytes, o.SegmentBytes = 256*mib, 64*mib
	d, _ := start(t, o, nil)
	m := newMemory(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var g sync.WaitGroup
	for w := range 3 {
		g.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 9))
			for i := w; ctx.Err() == nil; i += 3 {
				n := 4096 << rng.IntN(14) // to 32 MiB
				b, err := m.Alloc(ctx, n)
				if err != nil {
					continue // the others have it
				}
				e := tier.Entry{Record: tier.Record{Key: keyOf(i), Tokens: 256, Size: uint32(n), Sum: b.Seal()}, Block: b}
				for range 20 {
					if err = d.Put(ctx, e); !errors.Is(err, tier.ErrNoSpace) {
						break
					}
					_, _ = d.Trim(ctx, int64(n), nil)
				}
				if err != nil && !errors.Is(err, tier.ErrNoSpace) && ctx.Err() == nil {
					t.Errorf("put %d bytes: %v", n, err)
				}
				b.Release()
				if rng.IntN(10) == 0 {
					_ = d.Delete(ctx, []key.Key{keyOf(rng.IntN(i + 1))})
				}
			}
		})
	}
	samples, most := 0, int64(0)
	enough := func() bool { return d.Stats().Evictions > 0 || d.Stats().Puts >= 10 }
	for begun := time.Now(); time.Since(begun) < *churnFor || !enough() && time.Since(begun) < time.Minute; {
		samples++
		most = max(most, occupied(t, o.Paths[0]))
	}
	cancel()
	g.Wait()
	t.Logf("%d samples, at most %d MiB of %d; %d puts", samples, most/mib, o.CapacityBytes/mib, d.Stats().Puts)
	if most > o.CapacityBytes {
		t.Errorf("%d bytes were in use at some time; the capacity is %d", most, o.CapacityBytes)
	}
	if !enough() {
		t.Error("nothing much happened")
	}
}

// On a file system that is smaller than the capacity puts end with ErrNoSpace
// or find room by eviction; nothing hangs, nothing is wrong, and room that
// others give back is used.
func TestFullFileSystem(t *testing.T) {
	dir, unmount := smallFileSystem(t, 160*mib)
	defer unmount()
	o := testOptions(dir)
	o.CapacityBytes, o.MetaReserveBytes = 1<<30, 32*mib
	d, stop := start(t, o, nil)
	defer stop() // before the file system goes
	m := newMemory(t)
	ballast := dir + "/ballast" // a foreign file
	if err := os.WriteFile(ballast, make([]byte, 60*mib), 0o600); err != nil {
		t.Fatal(err)
	}
	churn := func() (stored int) {
		for i := range 150 {
			if putOrTrim(t, d, m, i, mib, func([]key.Key) {}) {
				mustGet(t, d, m, i, mib)
				stored++
			}
			if _, err := d.Trim(context.Background(), 0, nil); err != nil {
				wantErr(t, err, tier.ErrNoSpace)
			}
		}
		return stored
	}
	full := churn()
	before := d.Stats().Entries
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := (maintenance{d}).lookAll(); err != nil { // the maintenance does so every second
		t.Fatal(err)
	}
	if stored := churn(); stored < 150 {
		t.Errorf("%d of 150 were stored with room", stored)
	}
	t.Logf("%d of 150 stored while full, %d entries; %d with room", full, before, d.Stats().Entries)
	if d.Stats().Entries <= before {
		t.Errorf("%d entries with more room, %d before", d.Stats().Entries, before)
	}
	checkBooks(t, d)
}
