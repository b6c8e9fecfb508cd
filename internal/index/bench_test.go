package index

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"slices"
	"testing"
	"time"
)

var benchChunks = flag.Int("chunks", 200_000, "size of the index in benchmarks; the goals are for 10,000,000")

const benchChain = 8192

func randomHash(rng *rand.Rand) (h Hash) {
	for i := range 8 {
		h[i] = byte(rng.Uint32())
		h[8+i] = byte(rng.Uint32())
	}
	return h
}

func randomChain(rng *rand.Rand, n int) []Hash {
	chain := make([]Hash, n)
	for i := range chain {
		chain[i] = randomHash(rng)
	}
	return chain
}

// buildBench fills an index with chains of 64 to 256 chunks, sixteen of 8,192
// among them, and returns those.
func buildBench(b *testing.B, add func(chain []Hash)) (long [][]Hash) {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	for n := 0; n < *benchChunks; {
		chain := randomChain(rng, 64+rng.IntN(193))
		if n > len(long)**benchChunks/16 {
			chain = randomChain(rng, benchChain)
			long = append(long, chain)
		}
		add(chain)
		n += len(chain)
	}
	return long
}

func BenchmarkMatch(b *testing.B) {
	t := NewTree()
	var longest time.Duration
	long := buildBench(b, func(chain []Hash) {
		for i := 0; i < len(chain); i += 64 {
			begin := b.Elapsed()
			if err := t.Add(Hash{}, chain[:min(i+64, len(chain))], i, 1); err != nil {
				b.Fatal(err)
			}
			longest = max(longest, b.Elapsed()-begin)
		}
	})
	st := t.Stats()
	locs := make([]Loc, benchChain)
	report := func(b *testing.B) {
		b.ReportMetric(float64(st.Bytes)/float64(st.Chunks), "B/chunk")
	}
	b.Run("warm", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if t.Match(Hash{}, long[0], 0, locs, nil) != benchChain {
				b.Fatal("no match")
			}
		}
		report(b)
	})
	b.Run("cold", func(b *testing.B) {
		evict := make([]uint64, 16<<20) // four times the last level cache
		took := make([]time.Duration, 31)
		for i := range took {
			for j := range evict {
				evict[j]++
			}
			begin := b.Elapsed()
			t.Match(Hash{}, long[i%len(long)], 0, locs, nil)
			took[i] = b.Elapsed() - begin
		}
		slices.Sort(took)
		for b.Loop() { // the median above is the result
		}
		b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
		b.ReportMetric(0, "ns/op")
	})
	b.Run("fork", func(b *testing.B) { // differs in the middle of a run
		chain := append([]Hash(nil), long[0]...)
		copy(chain[5000:], randomChain(rand.New(rand.NewPCG(2, 2)), benchChain-5000))
		for b.Loop() {
			if t.Match(Hash{}, chain, 0, locs, nil) != 5000 {
				b.Fatal("no match")
			}
		}
	})
	b.Run("gc", func(b *testing.B) {
		for b.Loop() {
			runtime.GC()
		}
		b.ReportMetric(markSeconds(t)*1e6, "mark-us")
		b.ReportMetric(float64(longest.Microseconds()), "longest-add-us")
	})
}

// markSeconds is the CPU time of one more collection's mark phase.
func markSeconds(keep *Tree) float64 {
	sample := []metrics.Sample{
		{Name: "/cpu/classes/gc/mark/dedicated:cpu-seconds"},
		{Name: "/cpu/classes/gc/mark/idle:cpu-seconds"},
		{Name: "/cpu/classes/gc/mark/assist:cpu-seconds"},
	}
	sum := func() (s float64) {
		metrics.Read(sample)
		for _, m := range sample {
			s += m.Value.Float64()
		}
		return s
	}
	runtime.GC()
	before := sum()
	runtime.GC()
	after := sum()
	runtime.KeepAlive(keep)
	return after - before
}

// BenchmarkMatchMap is what the tree stands against: a map entry per chunk.
func BenchmarkMatchMap(b *testing.B) {
	type key struct{ hash Hash }
	type entry struct {
		parent Hash
		loc    Loc
	}
	m := map[key]entry{}
	long := buildBench(b, func(chain []Hash) {
		var prev Hash
		for _, h := range chain {
			m[key{hash: h}] = entry{prev, 1}
			prev = h
		}
	})
	locs := make([]Loc, benchChain)
	for b.Loop() {
		var prev Hash
		for i, h := range long[0] {
			e, ok := m[key{hash: h}]
			if !ok || e.parent != prev {
				break
			}
			locs[i], prev = e.loc, h
		}
	}
}

func BenchmarkUpdate(b *testing.B) {
	t := NewTree()
	var all [][]Hash
	buildBench(b, func(chain []Hash) {
		all = append(all, chain)
		if err := t.Add(Hash{}, chain, 0, 1); err != nil {
			b.Fatal(err)
		}
	})
	rng := rand.New(rand.NewPCG(4, 4))
	b.Run("set", func(b *testing.B) {
		for b.Loop() {
			chain := all[rng.IntN(len(all))]
			t.Set(Hash{}, chain[rng.IntN(len(chain))], 2, 0)
		}
	})
	b.Run("evict-and-insert", func(b *testing.B) {
		for b.Loop() {
			chain := all[rng.IntN(len(all))]
			n := len(chain) - 1
			t.Set(Hash{}, chain[n], 0, 255)
			if err := t.Insert(Hash{}, chain[n-1], chain[n], 1); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("fork-and-prune", func(b *testing.B) {
		for b.Loop() {
			chain := all[rng.IntN(len(all))]
			h := randomHash(rng)
			if err := t.Insert(Hash{}, chain[rng.IntN(len(chain))], h, 1); err != nil {
				b.Fatal(err)
			}
			t.Set(Hash{}, h, 0, 255)
		}
	})
}

// BenchmarkRecover inserts single chunks in random order.
func BenchmarkRecover(b *testing.B) {
	type pair struct{ parent, hash Hash }
	var all []pair
	buildBench(b, func(chain []Hash) {
		var prev Hash
		for _, h := range chain {
			all = append(all, pair{prev, h})
			prev = h
		}
	})
	rand.New(rand.NewPCG(5, 5)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for b.Loop() {
		t := NewTree()
		var longest time.Duration
		begin := b.Elapsed()
		for _, p := range all {
			if err := t.Insert(Hash{}, p.parent, p.hash, 1); err != nil {
				b.Fatal(err)
			}
			now := b.Elapsed()
			longest = max(longest, now-begin)
			begin = now
		}
		st := t.Stats()
		b.ReportMetric(float64(st.Bytes)/float64(st.Chunks), "B/chunk")
		b.ReportMetric(float64(st.Chunks)/float64(st.Runs), "chunks/run")
		b.ReportMetric(float64(longest.Microseconds()), "longest-us")
	}
}
