package pick

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kvstored/kvstored/router/index"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a)) }

func TestExpect(t *testing.T) {
	s := Speeds{Prefill: 100, Load: [index.Media]float64{0, 1000, 50, 200}}
	for _, tc := range []struct {
		what           string
		prompt         int
		tokens         [index.Media]int
		queue          float64
		load, computed float64
		reused         int
		from           index.Medium
	}{
		{"nothing", 1000, [4]int{}, 2, 0, 10, 0, index.GPU},
		{"all on the GPU: the last token is computed", 1000, [4]int{1000, 1000, 1000, 1000}, 0, 0, 0.01, 999, index.GPU},
		{"half on the GPU", 1000, [4]int{500, 500, 500, 500}, 0, 0, 5, 500, index.GPU},
		{"more in DRAM", 1000, [4]int{500, 900, 900, 900}, 0, 0.4, 1, 900, index.CPU},
		{"a disk that is slower than computing", 1000, [4]int{0, 500, 900, 900}, 0, 0.5, 5, 500, index.CPU},
		{"beyond a slow disk, worth it", 1000, [4]int{0, 0, 100, 900}, 0, 2 + 4, 1, 900, index.Shared},
		{"one token", 1, [4]int{1, 1, 1, 1}, 0, 0, 0.01, 0, index.GPU},
		{"no token", 0, [4]int{}, 1, 0, 0, 0, index.GPU},
		{"more than the prompt", 10, [4]int{64, 64, 64, 64}, 0, 0, 0.01, 9, index.GPU},
	} {
		e := Expect(tc.prompt, &Candidate{Queue: tc.queue, Tokens: tc.tokens, Speeds: s})
		if e.Queue != tc.queue || !near(e.Load, tc.load) || !near(e.Compute, tc.computed) || e.Reused != tc.reused || e.From != tc.from {
			t.Errorf("%s: %+v", tc.what, e)
		}
	}
	s.Load[index.CPU] = 0 // never loaded, nor what is behind it
	if e := Expect(1000, &Candidate{Tokens: [4]int{100, 500, 900, 1000}, Speeds: s}); e.Reused != 100 || e.Load != 0 {
		t.Errorf("loads from a medium that is not loaded from: %+v", e)
	}
}

// No depth is faster than the one that Expect has, over random workers.
func TestExpectIsTheFastest(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 20000 {
		c := Candidate{Speeds: Speeds{Prefill: 1 + 100*rnd.Float64()}}
		at := 0
		for m := range index.Medium(index.Media) {
			at += rnd.IntN(50)
			c.Tokens[m] = at
			c.Speeds.Load[m] = float64(rnd.IntN(4)) * 40 * rnd.Float64()
		}
		prompt := 1 + rnd.IntN(200)
		e := Expect(prompt, &c)
		for depth := range min(at, prompt-1) + 1 { // token by token
			cost := float64(prompt-depth) / c.Speeds.Prefill
			for i := range depth {
				m := index.GPU
				for i >= c.Tokens[m] {
					m++
				}
				for behind := index.CPU; behind <= m; behind++ {
					if c.Speeds.Load[behind] == 0 && (behind == m || min(c.Tokens[behind], prompt-1) > c.Tokens[behind-1]) {
						cost = math.Inf(1)
					}
				}
				if m > index.GPU {
					cost += 1 / c.Speeds.Load[m]
				}
			}
			if cost < e.Work()-1e-9 {
				t.Fatalf("%+v, %d tokens: %d reused take %v, %d take %v", c, prompt, e.Reused, e.Work(), depth, cost)
			}
		}
	}
}

func TestChoose(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 2))
	all := []Estimate{{Compute: 2}, {Queue: 1}, {Load: 0.5, Compute: 0.5}, {Compute: 3}}
	count := func(temperature float64) (n [4]int) {
		for range 100_000 {
			n[Choose(all, temperature, rnd.Float64)]++
		}
		return n
	}
	if n := count(0); n[0]+n[3] > 0 || n[1] < 48_000 || n[2] < 48_000 {
		t.Errorf("without a temperature: %v; the two equal ones in the middle are meant", n)
	}
	n := count(1) // 1, e^-1, e^-2
	sum := 2 + math.Exp(-1) + math.Exp(-2)
	for i, share := range []float64{math.Exp(-1) / sum, 1 / sum, 1 / sum, math.Exp(-2) / sum} {
		if got := float64(n[i]) / 100_000; math.Abs(got-share) > 0.01 {
			t.Errorf("temperature 1: %d has %v, want %v", i, got, share)
		}
	}
	if Choose(nil, 0, rnd.Float64) != -1 {
		t.Error("of none one is chosen")
	}
	if i := Choose([]Estimate{{}, {}}, 0, func() float64 { return math.Nextafter(1, 0) }); i != 1 {
		t.Errorf("the end of chance is %d", i)
	}
}

func TestSpeeds(t *testing.T) {
	for _, change := range []func(*Speeds){
		func(s *Speeds) { s.Prefill = 0 }, func(s *Speeds) { s.Prefill = math.NaN() }, func(s *Speeds) { s.Prefill = math.Inf(1) },
		func(s *Speeds) { s.Load[index.Disk] = -1 }, func(s *Speeds) { s.Load[index.CPU] = math.NaN() }, func(s *Speeds) { s.Running = -1 },
	} {
		s := DefaultSpeeds()
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		change(&s)
		if err := s.Check(); !errors.Is(err, ErrSpeed) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

func TestLoads(t *testing.T) {
	w, s := index.Worker{ID: "w"}, &Speeds{Running: 0.5}
	l := NewLoads(3, 100)
	queue := func(now, want float64) {
		t.Helper()
		if got := l.Queue(now, w, s); !near(got, want) {
			t.Errorf("at %v the queue is %v, want %v", now, got, want)
		}
	}
	reserve := func(now, work float64) uint64 {
		t.Helper()
		id, err := l.Reserve(now, w, work, 1)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	queue(0, 0)
	first, second := reserve(0, 10), reserve(0, 10)
	queue(0, 21)
	queue(5, 16) // time works it off
	if _, err := l.First(5, first); err != nil {
		t.Fatal(err)
	}
	queue(5, 11) // the second begins
	_, _ = l.First(5, first)
	queue(5, 11)
	queue(50, 1) // nothing is left but two that decode
	third := reserve(50, 2)
	queue(51, 2.5)
	if _, err := l.Reserve(51, w, 1, 1); !errors.Is(err, ErrTooMany) {
		t.Errorf("the fourth of three: %v", err)
	}
	for _, id := range []uint64{second, third, first} {
		if got, err := l.Free(51, id); err != nil || got.Worker != w || got.Started != (id == first) {
			t.Errorf("free: %v, %v", got, err)
		}
		if _, err := l.Free(51, id); !errors.Is(err, ErrReservation) {
			t.Errorf("freed twice: %v", err)
		}
	}
	queue(51, 0)
	if len(l.workers) != 0 || l.Len() != 0 || l.order.Len() != 0 {
		t.Error("something is left")
	}
	old := reserve(60, 1)
	l.Expire(159.9)
	queue(159, 0.5)
	l.Expire(160)
	queue(160, 0)
	if _, err := l.First(160, old); !errors.Is(err, ErrReservation) {
		t.Errorf("one that grew too old: %v", err)
	}
	reserve(200, 1)
	if l.Drop(w); l.Len() != 0 || l.Running(w) != 0 {
		t.Error("a worker that is gone has reservations")
	}
}

// In any order of reservations and their ends work is never negative, and nothing is
// left at the end.
func TestLoadsAtRandom(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 3))
	l := NewLoads(200, 50)
	now := 0.0
	var ids []uint64
	s := &Speeds{Running: 0.01}
	for range 100_000 {
		now += rnd.Float64()
		w := index.Worker{ID: "w", Rank: rnd.Uint32N(5)}
		switch n := rnd.IntN(10); {
		case n < 5:
			if id, err := l.Reserve(now, w, 3*rnd.Float64(), 1); err == nil {
				ids = append(ids, id)
			} else if !errors.Is(err, ErrTooMany) {
				t.Fatal(err)
			}
		case len(ids) > 0:
			id := ids[rnd.IntN(len(ids))]
			if n < 7 {
				_, _ = l.First(now, id) // some are too old
			} else {
				_, _ = l.Free(now, id)
			}
		}
		sum := 0.0
		for e := l.order.Front(); e != nil; e = e.Next() {
			if r := e.Value.(*Reservation); r.Worker == w && !r.Started {
				sum += r.Work
			}
		}
		if got := l.Queue(now, w, s); got < 0 || got > sum+float64(l.Running(w))*s.Running+1e-6 {
			t.Fatalf("a queue of %v of %v s of work", got, sum)
		}
		if len(ids) > 400 {
			ids = ids[200:]
		}
	}
	if l.Expire(now + 50); l.Len() != 0 || len(l.workers) != 0 {
		t.Errorf("%d reservations, %d workers at the end", l.Len(), len(l.workers))
	}
}
