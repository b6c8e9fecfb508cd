package base

import (
	"maps"
	"math/rand/v2"
	"runtime"
	"testing"
)

// A map that had many entries keeps the few that are left.
func TestDelete(t *testing.T) {
	const many, left = 50_000, 100
	m, peak := make(map[int][4]int), 0
	for i := range many {
		m[i] = [4]int{i}
	}
	for i := left; i < many; i++ {
		Delete(&m, i, &peak)
	}
	for i := range left {
		if m[i] != [4]int{i} {
			t.Fatalf("entry %d is %v", i, m[i])
		}
	}
	if len(m) != left {
		t.Errorf("%d entries are left, want %d", len(m), left)
	}
}

// No deletion copies many entries.
func TestCopiesFew(t *testing.T) {
	const many = 100_000
	m, peak, copies := make(map[int]int), 0, 0
	for i := range many {
		m[i] = i
	}
	for i := range many {
		was := max(peak, len(m))
		if Delete(&m, i, &peak); peak == was {
			continue
		}
		if copies++; len(m) > few {
			t.Errorf("%d entries are copied", len(m))
		}
	}
	if copies == 0 {
		t.Error("the map is never made anew")
	}
}

// Against plain deletions, in any order, with keys that are not there.
func TestAgainstMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	want, got, peak := make(map[int]int), make(map[int]int), 0
	for round := range 4 {
		for range 40_000 {
			k, v := rng.IntN(100_000), rng.Int()
			want[k], got[k] = v, v
		}
		for range 400_000 >> round {
			k := rng.IntN(100_000)
			delete(want, k)
			Delete(&got, k, &peak)
		}
		if !maps.Equal(want, got) {
			t.Fatalf("round %d: %d entries, want %d", round, len(got), len(want))
		}
	}
	var none map[int]int
	Delete(&none, 1, new(int))
}

// BenchmarkDelete reports the KiB that stay of 500,000 entries of 40 bytes when 100 are left.
func BenchmarkDelete(b *testing.B) {
	heap := func() int64 {
		var st runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&st)
		return int64(st.HeapAlloc)
	}
	for b.Loop() {
		before := heap()
		m, peak := make(map[int][4]int), 0
		for i := range 500_000 {
			m[i] = [4]int{i}
		}
		for i := 100; i < 500_000; i++ {
			Delete(&m, i, &peak)
		}
		b.ReportMetric(float64((heap()-before)>>10), "KiB")
		runtime.KeepAlive(m)
	}
}
