package arena

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kvstored/kvstored/internal/base"
)

func TestFreeOfWhatIsNotHandedOut(t *testing.T) {
	const mib = 1 << 20
	for name, free := range map[string]func(a *Allocator, off int64){
		"twice":           func(a *Allocator, off int64) { a.Free(off, mib); a.Free(off, mib) },
		"a part":          func(a *Allocator, off int64) { a.Free(off, mib/2) },
		"too much":        func(a *Allocator, off int64) { a.Free(off, mib+1) },
		"the inside":      func(a *Allocator, off int64) { a.Free(off+UnitBytes, mib-UnitBytes) },
		"unaligned":       func(a *Allocator, off int64) { a.Free(off+1, mib) },
		"nothing":         func(a *Allocator, off int64) { a.Free(off, 0) },
		"negative":        func(a *Allocator, off int64) { a.Free(-UnitBytes, mib) },
		"the free rest":   func(a *Allocator, off int64) { a.Free(off+mib, 15*mib) },
		"behind the end":  func(a *Allocator, off int64) { a.Free(16*mib, mib) },
		"far behind":      func(a *Allocator, off int64) { a.Free(math.MaxInt64&^(UnitBytes-1), mib) },
		"the end's place": func(a *Allocator, off int64) { a.Free(16*mib, UnitBytes) },
	} {
		t.Run(name, func(t *testing.T) {
			a := NewAllocator(16 * mib)
			off, ok := a.Alloc(mib)
			if !ok || off != 0 {
				t.Fatalf("Alloc = %d, %t", off, ok)
			}
			func() {
				defer func() {
					if recover() == nil {
						t.Fatal("no panic")
					}
				}()
				free(a, off)
			}()
			t.Cleanup(base.SurviveBroken())
			used := a.UsedBytes()
			if free(a, off); a.UsedBytes() != used || a.Extents() != used/mib {
				t.Errorf("%d bytes in use, %d extents", a.UsedBytes(), a.Extents())
			}
		})
	}
}

func TestFreeTakesTheSizeAskedOrRounded(t *testing.T) {
	a := NewAllocator(1 << 20)
	for _, n := range []int64{1, UnitBytes} {
		off, ok := a.Alloc(1)
		if !ok || a.UsedBytes() != UnitBytes {
			t.Fatalf("Alloc(1) = %t, used %d", ok, a.UsedBytes())
		}
		a.Free(off, n)
	}
}

func TestMalformedRequestsAreRefused(t *testing.T) {
	a := NewAllocator(1<<20 + 123) // rounded down
	if a.Capacity() != 1<<20 {
		t.Fatalf("capacity %d", a.Capacity())
	}
	for _, n := range []int64{0, -1, math.MinInt64, 1<<20 + 1, math.MaxInt64} {
		if off, ok := a.Alloc(n); ok {
			t.Errorf("Alloc(%d) = %d", n, off)
		}
	}
	for _, s := range []span{
		{0, 0}, {0, -1}, {-UnitBytes, UnitBytes}, {1, UnitBytes}, {1 << 20, 1}, {UnitBytes, 1 << 20},
		{0, math.MaxInt64}, {math.MaxInt64 &^ (UnitBytes - 1), UnitBytes}, {UnitBytes, math.MaxInt64},
	} {
		if a.Reserve(s.off, s.n) {
			t.Errorf("Reserve(%d, %d) succeeded", s.off, s.n)
		}
	}
	if a.FreeBytes() != 1<<20 || !a.Reserve(1<<20-UnitBytes, UnitBytes) {
		t.Error("a refused request changed something")
	}
}

func TestNoCapacity(t *testing.T) {
	for _, n := range []int64{-5, 0, UnitBytes - 1} {
		a := NewAllocator(n)
		if _, ok := a.Alloc(1); ok || a.Reserve(0, 1) || a.Capacity() != 0 || a.LargestFree() != 0 {
			t.Errorf("New(%d) hands something out", n)
		}
	}
}

// A full space of equal extents takes a new one in the place of any that was
// freed: equal sizes do not fragment, and the last freed is the first used.
func TestEqualSizesReuseTheLastFreed(t *testing.T) {
	const n = 256 << 10
	a := NewAllocator(64 * n)
	for range 64 {
		if _, ok := a.Alloc(n); !ok {
			t.Fatal("not all of the space can be handed out")
		}
	}
	for _, off := range []int64{3 * n, 60 * n, 20 * n} {
		a.Free(off, n)
	}
	for _, want := range []int64{20 * n, 60 * n, 3 * n} {
		if off, ok := a.Alloc(n); !ok || off != want {
			t.Fatalf("Alloc = %d, %t, want %d", off, ok, want)
		}
	}
}

// Recovery announces extents in any order, on disks too large for a tag per
// unit; both ends of the space must be as cheap as the middle.
func TestReserveOnALargeDisk(t *testing.T) {
	const capacity, n, count = 20 << 40, 1 << 20, 20_000
	a := NewAllocator(capacity)
	var offs []int64
	for i := range int64(count) {
		offs = append(offs, capacity-(i+1)*2*n) // descending, with holes
	}
	rand.Shuffle(count/2, func(i, j int) { offs[i], offs[j] = offs[j], offs[i] })
	for _, off := range offs {
		if !a.Reserve(off, n) || a.Reserve(off, n) {
			t.Fatalf("Reserve(%d) is wrong", off)
		}
	}
	if a.UsedBytes() != count*n || a.LargestFree() != capacity-count*2*n {
		t.Fatalf("used %d, largest free %d", a.UsedBytes(), a.LargestFree())
	}
	for _, off := range offs {
		a.Free(off, n)
	}
	if a.LargestFree() != capacity {
		t.Fatalf("largest free %d", a.LargestFree())
	}
}

// Memory follows the number of extents: records of freed ones are used again.
func TestRecordsAreReused(t *testing.T) {
	a := NewAllocator(1 << 30)
	churn := func() {
		var offs []int64
		for range 1000 {
			off, _ := a.Alloc(UnitBytes)
			offs = append(offs, off)
		}
		for _, off := range offs {
			a.Free(off, UnitBytes)
		}
	}
	churn()
	if n := testing.AllocsPerRun(10, func() {
		off, _ := a.Alloc(3 * UnitBytes)
		a.Free(off, 3*UnitBytes)
	}); n != 0 {
		t.Errorf("%v allocations per pair of calls", n)
	}
	used := a.records.used
	churn()
	if a.records.used != used {
		t.Errorf("%d records after %d", a.records.used, used)
	}
}

func BenchmarkAllocFree(b *testing.B) {
	for name, size := range map[string]func(*rand.Rand) int64{
		"equal": func(*rand.Rand) int64 { return 1 << 20 },
		"mixed": func(r *rand.Rand) int64 { return UnitBytes + r.Int64N(4<<20) },
		"small": func(r *rand.Rand) int64 { return UnitBytes + r.Int64N(64<<10) },
	} {
		b.Run(name, func(b *testing.B) {
			a := NewAllocator(64 << 30)
			rnd := rand.New(rand.NewPCG(1, 2))
			var live []span
			for a.UsedBytes() < a.Capacity()*9/10 {
				n := size(rnd)
				off, _ := a.Alloc(n)
				live = append(live, span{off, n})
			}
			b.ReportAllocs()
			for b.Loop() {
				i := rnd.IntN(len(live))
				a.Free(live[i].off, live[i].n)
				n := size(rnd)
				off, ok := a.Alloc(n)
				if !ok {
					n = live[i].n
					off, _ = a.Alloc(n)
				}
				live[i] = span{off, n}
			}
			b.ReportMetric(float64(len(live)), "extents")
		})
	}
}
