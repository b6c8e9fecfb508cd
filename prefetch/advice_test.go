package prefetch_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kvstored/kvstored/prefetch"
)

// after is the time to the end if k chunks are loaded, worked out from the
// start for this k: every link delivers its bytes, one chunk after the other.
func after(k int, steps []prefetch.Step, links []prefetch.Link, tokens uint64, rate float64) float64 {
	free := make([]float64, len(links))
	ready := 0.0
	for i, s := range steps {
		switch {
		case i >= k:
			tokens += uint64(s.Tokens)
		case s.Link >= 0:
			free[s.Link] += float64(s.Bytes) / links[s.Link].BytesPerSecond
			ready = max(ready, free[s.Link], links[s.Link].First.Seconds())
		}
	}
	return ready + float64(tokens)/rate
}

// No other number of chunks is ready sooner.
func TestAdviseIsBest(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 5000 {
		links := make([]prefetch.Link, 2)
		for i := range links {
			links[i] = prefetch.Link{First: time.Duration(r.IntN(100)) * time.Millisecond, BytesPerSecond: math.Pow(10, 5+4*r.Float64())}
		}
		steps := make([]prefetch.Step, r.IntN(30))
		for i := range steps {
			steps[i] = prefetch.Step{Link: r.IntN(2), Bytes: 1 + r.Int64N(1<<20), Tokens: uint32(1 + r.IntN(256))}
		}
		hot := r.IntN(len(steps) + 1)
		for i := range hot {
			steps[i].Link = -1
		}
		tokens, rate := uint64(r.IntN(5000)), math.Pow(10, 2+4*r.Float64())
		load, took := prefetch.Advise(steps, links, tokens, rate)
		best := math.Inf(1)
		for k := hot; k <= len(steps); k++ {
			best = min(best, after(k, steps, links, tokens, rate))
		}
		if load < hot || load > len(steps) {
			t.Fatalf("%d of %d chunks, of which %d are there", load, len(steps), hot)
		}
		if got := after(load, steps, links, tokens, rate); math.Abs(got-best) > 1e-9 || math.Abs(took.Seconds()-best) > 1e-6 {
			t.Fatalf("%d chunks take %v s, said %v; %v s is possible", load, got, took, best)
		}
	}
}

func TestAdvise(t *testing.T) {
	steps := make([]prefetch.Step, 10)
	for i := range steps {
		steps[i] = prefetch.Step{Bytes: 1e6, Tokens: 100}
	}
	for name, tc := range map[string]struct {
		link prefetch.Link
		rate float64
		load int
		took time.Duration
	}{
		"a tier nobody has measured": {prefetch.Link{}, 1000, 10, 0},
		"loading is faster":          {prefetch.Link{First: time.Millisecond, BytesPerSecond: 1e9}, 1000, 10, 10 * time.Millisecond},
		"computing is faster":        {prefetch.Link{First: time.Millisecond, BytesPerSecond: 1e6}, 1e4, 0, 100 * time.Millisecond},
		"not worth the first load":   {prefetch.Link{First: 2 * time.Second, BytesPerSecond: 1e9}, 1000, 0, time.Second},
		"as fast: load":              {prefetch.Link{BytesPerSecond: 1e7}, 1000, 10, time.Second},
	} {
		if load, took := prefetch.Advise(steps, []prefetch.Link{tc.link}, 0, tc.rate); load != tc.load || took != tc.took {
			t.Errorf("%s: %d chunks, %v; want %d, %v", name, load, took, tc.load, tc.took)
		}
	}
	steps[7].Link, steps[8].Link, steps[9].Link = 1, 1, 1
	fast, slow := prefetch.Link{BytesPerSecond: 1e9}, prefetch.Link{First: 5 * time.Second, BytesPerSecond: 1e9}
	if load, _ := prefetch.Advise(steps, []prefetch.Link{fast, slow}, 0, 1000); load != 7 {
		t.Errorf("with a slow end: %d chunks; want the 7 before it", load)
	}
}
