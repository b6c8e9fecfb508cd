package disk

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// putOrTrim stores key n, evicting as the store does. It reports whether
// there was room at last.
func putOrTrim(t testing.TB, d *rig, m memory, n, size int, gone func([]key.Key)) bool {
	t.Helper()
	for range 100 {
		err := put(t, d, m, n, size)
		if err == nil {
			return true
		}
		wantErr(t, err, tier.ErrNoSpace)
		out, err := d.Trim(context.Background(), int64(size), nil)
		gone(out)
		if err != nil {
			wantErr(t, err, tier.ErrNoSpace)
			return false
		}
	}
	return false
}

func TestCapacityHoldsUnderChurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		o.CapacityBytes, o.MetaReserveBytes, o.SegmentBytes = 32*mib, 12*mib, 2*mib
		d, stop := start(t, o, nil)
		m := newMemory(t)
		rng := rand.New(rand.NewPCG(3, 4))
		size := make(map[key.Key]int)
		number := make(map[key.Key]int)
		stored := 0
		for i := range 800 {
			n := 1 + rng.IntN(1<<(9+rng.IntN(11))) // up to 512 KiB, mostly small
			k := keyOf(i)
			ok := putOrTrim(t, d, m, i, n, func(out []key.Key) {
				for _, k := range out {
					if d.Has(k) {
						t.Fatal("evicted, and still there")
					}
					delete(size, k)
				}
			})
			if ok {
				stored += n
				size[k], number[k] = n, i
			}
			if i%20 == 0 {
				if at := occupied(o.Paths[0]); at > o.CapacityBytes {
					t.Fatalf("after %d puts %d bytes are on disk, capacity %d", i, at, o.CapacityBytes)
				}
				checkBooks(t, d)
			}
		}
		if stored < 30*mib {
			t.Fatalf("only %d bytes went through", stored)
		}
		if int64(len(size)) != d.Stats().Entries {
			t.Fatalf("%d entries, want %d", d.Stats().Entries, len(size))
		}
		for k, n := range size {
			mustGet(t, d, m, number[k], n)
		}
		recount(t, d)
		stop()
		d, _ = start(t, o, nil)
		if got := recoverAll(t, d); len(got) != len(size) {
			t.Fatalf("recovered %d entries, want %d", len(got), len(size))
		}
		checkBooks(t, d)
	})
}

func TestTrimKeepsWatermarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		o.HighWatermark, o.LowWatermark = 0.75, 0.5
		d, _ := start(t, o, nil)
		m := newMemory(t)
		ctx := context.Background()
		for i := range 36 { // exactly the high watermark of 48 MiB
			mustPut(t, d, m, i, mib-database.HeaderBytes)
			out, err := d.Trim(ctx, 0, nil)
			if err != nil || len(out) != 0 {
				t.Fatalf("evicted %d with %d MiB of 48 in use: %v", len(out), i+1, err)
			}
		}
		out, err := d.Trim(ctx, mib-database.HeaderBytes, nil)
		if err != nil {
			t.Fatal(err)
		}
		if used := d.Stats().UsedBytes; used != 23*mib || len(out) != 13 {
			t.Fatalf("%d MiB in use after %d evictions, want 23 after 13", used/mib, len(out))
		}
		for i, k := range out {
			if k != keyOf(i) {
				t.Fatalf("victim %d is not the oldest", i)
			}
		}
		_, err = d.Trim(ctx, o.CapacityBytes, nil)
		wantErr(t, err, tier.ErrTooLarge)
	})
}

// Victims that are smaller than the payload for which there is to be room, and lie apart,
// are not the end: the next one that is as large leaves a place for it.
func TestTrimPastSmallVictims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		o.HighWatermark, o.LowWatermark, o.InlineMax = 1, 0.999, 0
		d, _ := start(t, o, nil)
		m := newMemory(t)
		const pairs, small, large = 40, 1000, 5000 // extents of 8 and 12 KiB
		n := 0
		var young []key.Key
		for n < 2*pairs {
			mustPut(t, d, m, n, small)
			mustPut(t, d, m, n+1, large)
			young = append(young, keyOf(n+1))
			n += 2
		}
		for _, size := range []int{mib - database.HeaderBytes, 60 << 10, large} {
			err := put(t, d, m, n, size)
			for ; err == nil; err = put(t, d, m, n, size) {
				young = append(young, keyOf(n))
				n++
			}
			wantErr(t, err, tier.ErrNoSpace)
		}
		d.Touch(young)
		for full := true; full; { // some room may be left in pieces
			out, err := d.Trim(t.Context(), large, nil)
			if err != nil {
				t.Fatalf("after %d evictions: %v", len(out), err)
			}
			full = len(out) < pairs
			mustPut(t, d, m, n, large)
			n++
		}
	})
}

func TestEmptySegmentsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		d, _ := start(t, o, nil)
		m := newMemory(t)
		var ks []key.Key
		for i := range 20 {
			mustPut(t, d, m, i, mib)
			ks = append(ks, keyOf(i))
		}
		if err := d.Delete(context.Background(), ks); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := d.segments.removeIdle(d.volumes[0]); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(segmentFiles(t, o.Paths[0])); n != 0 {
			t.Fatalf("%d empty segments are left", n)
		}
		if u := d.segments.usage(); u.files != 0 || u.used != 0 {
			t.Fatalf("%d bytes of files, %d in use", u.files, u.used)
		}
		mustPut(t, d, m, 1, mib)
		mustGet(t, d, m, 1, mib)
	})
}

func TestMinFreeIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		o.MinFreeBytes = 1 << 60
		d, _ := start(t, o, nil)
		m := newMemory(t)
		wantErr(t, put(t, d, m, 1, mib), tier.ErrNoSpace)
		_, err := d.Trim(context.Background(), mib, nil)
		wantErr(t, err, tier.ErrNoSpace)
		if n := len(segmentFiles(t, o.Paths[0])); n != 0 {
			t.Fatalf("%d segments", n)
		}
	})
}

func TestConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		o.CapacityBytes, o.MetaReserveBytes, o.SegmentBytes = 32*mib, 12*mib, 4*mib
		o.IODepth = 4
		d, _ := start(t, o, nil)
		m := newMemory(t)
		sizeOf := func(n int) int { return 1 + n*7919%400_000 }
		const keys = 120
		var hits, misses atomic.Int64
		var g sync.WaitGroup
		for w := range 6 {
			g.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(w), 1))
				for range 150 {
					n := rng.IntN(keys)
					switch rng.IntN(8) {
					case 0:
						if err := d.Delete(context.Background(), []key.Key{keyOf(n), keyOf(n + 1)}); err != nil {
							t.Error(err)
						}
					case 1, 2, 3:
						putOrTrim(t, d, m, n, sizeOf(n), func([]key.Key) {})
					case 4:
						d.Touch([]key.Key{keyOf(n), keyOf(n + 1)})
						d.Stats()
					case 5:
						if err := d.Sync(context.Background()); err != nil {
							t.Error(err)
						}
					default:
						switch err := get(t, d, m, n, sizeOf(n)); {
						case err == nil:
							hits.Add(1)
						case errors.Is(err, tier.ErrNotFound):
							misses.Add(1)
						default:
							t.Error(err)
						}
					}
				}
			})
		}
		g.Wait()
		if s := d.Stats(); s.Corrupt != 0 {
			t.Fatalf("%d corrupt", s.Corrupt)
		}
		if hits.Load() == 0 || misses.Load() == 0 {
			t.Fatalf("%d hits, %d misses: nothing was tested", hits.Load(), misses.Load())
		}
		checkBooks(t, d)
		if blocks := m.Stats().Blocks; blocks != 0 {
			t.Fatalf("%d blocks leaked", blocks)
		}
	})
}
