package whatif

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/simulate"
)

// TestCostIsPaidOff: a report whose last row has taken more than its share of time waits with
// the next until it has not, and prompts that take more halve the sample.
func TestCostIsPaidOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which what is paced takes the time that the test says
		busy := 100 * time.Second
		r := New(Options{Busy: func() time.Duration { return busy }, Tiers: func() Tiers { return Tiers{} }})
		free := idle(1500*time.Second, 500*time.Second)
		r.spent.Store(int64(10 * time.Second)) // of 1 s for the requests, and 2 s besides
		if wait := r.until(free); wait < 3400*time.Second || wait > 3600*time.Second {
			t.Errorf("7 s too much are paid off in %v", wait)
		}
		r.spent.Store(int64(2 * time.Second))
		if wait := r.until(free); wait != gather {
			t.Errorf("within its share it waits %v", wait)
		}
		if got := idle(time.Second, 3*time.Second); got != 0 {
			t.Errorf("a process that used three processors did nothing for %v", got)
		}
		r.pace(time.Now(), false) // the first has nothing to compare with
		busy += time.Second
		if r.pace(time.Now(), false); r.book.shift != 0 {
			t.Error("the sample is halved without need")
		}
		if r.pace(time.Now().Add(-time.Second), false); r.book.shift != 1 {
			t.Errorf("a second for one second of requests: 1 of %d sessions", 1<<r.book.shift)
		}
		if got := r.Spent(); got < 3*time.Second {
			t.Errorf("spent %v", got)
		}
	})
}

// TestNotesCount: what requests take to note their prompts is spent, and halves the sample
// where it is more than its share; what they take to pass over the others cannot.
func TestNotesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which what is paced takes the time that the test says
		busy := 100 * time.Second
		r := New(Options{Busy: func() time.Duration { return busy }, Tiers: func() Tiers { return Tiers{} }})
		r.pace(time.Now(), false)
		for range 100 * metered {
			begun := time.Now().Add(-time.Second) // interrupted
			r.notes.end(begun, false)
			r.notes.end(time.Time{}, true) // not timed
		}
		busy += time.Second
		if r.pace(time.Now(), false); r.book.shift != 0 {
			t.Error("prompts that are not in the sample halve it")
		}
		if got, want := r.Spent(), 100*metered*metered*longest; got < want || got > want+time.Second {
			t.Errorf("spent %v of %v", got, want)
		}
		for range 100 {
			r.notes.end(time.Now().Add(-time.Second), true)
		}
		if r.pace(time.Now(), false); r.book.shift != 1 {
			t.Errorf("320 ms for one second of requests: 1 of %d sessions", 1<<r.book.shift)
		}
		if r.pace(time.Now(), false); r.book.shift != 1 {
			t.Error("they halve it twice")
		}
	})
}

// TestGuess: however many heads the last chain had, the session of the next is the same.
func TestGuess(t *testing.T) {
	for n := 1; n <= 9; n++ {
		for heads := range n + 1 {
			for guess := range 12 {
				g := &gate{shift: 1, heads: make(map[uint64]struct{})}
				for i := range heads {
					g.heads[uint64(i)] = struct{}{}
				}
				g.guess.Store(int32(guess))
				if got, want := g.of(n, func(i int) uint64 { return uint64(i) }), uint64(min(heads, n-1)); got != want {
					t.Fatalf("%d chunks, %d of them heads, after one with %d: session %d", n, heads, guess, got)
				}
			}
		}
	}
}

// TestRankBy: tenure is played with the weights that the tiers give chunks, and
// policies that know no costs are not touched by them.
func TestRankBy(t *testing.T) {
	b, rng := newBook(maxChunks), rand.New(rand.NewPCG(24, 2))
	for range 4000 {
		id := uint64(rng.IntN(200))
		offer(b, session(id, 0, 1+int(id%40)), huge)
	}
	hits := func(by bool) map[string]float64 {
		now := Tiers{DRAM: Tier{Bytes: 1 << 20, Chunks: 600, Policy: "lru", ByCompute: by}, Disk: Tier{Bytes: 1 << 20, Chunks: 900, Policy: "lru", ByCompute: by}, Write: simulate.Through}
		p := newPlay(b.copy(), now, 500)
		p.report.Rows = slices.DeleteFunc(p.report.Rows, func(r Row) bool {
			return r.Factor != 1 || !slices.Contains([]string{"lru", "s3fifo", "tenure"}, r.Policy)
		})
		p.all(t)
		out := make(map[string]float64)
		for _, r := range p.report.Rows {
			out[r.Tier+" "+r.Policy] = r.Compute
		}
		return out
	}
	tokens, compute := hits(false), hits(true)
	for _, name := range []string{"cpu tenure", "disk tenure"} {
		if tokens[name] == compute[name] {
			t.Errorf("%s: %.4f of the compute either way", name, tokens[name])
		}
	}
	if tokens["cpu lru"] != compute["cpu lru"] || tokens["disk s3fifo"] != compute["disk s3fifo"] {
		t.Errorf("by tokens %v, by compute %v", tokens, compute)
	}
}
