package tier_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/tier"
)

// world is loads that take a second each through one queue, and what each
// client has had.
type world struct {
	q    *tier.Queue
	last atomic.Int64 // bytes that a load has brought: the guess at the next
	mu   sync.Mutex
	had  map[uint64]int64
	run  sync.WaitGroup
}

func newWorld(l tier.Limit) *world {
	w := &world{q: tier.NewQueue(l), had: make(map[uint64]int64)}
	w.last.Store(1000)
	return w
}

// job brings n chunks of so many bytes up, window at a time. The channel it
// returns is closed when the first is there.
func (w *world) job(t *testing.T, by tier.By, n, window int, bytes int64) (first chan struct{}) {
	first = make(chan struct{})
	ended := sync.OnceFunc(func() { close(first) })
	work := make(chan struct{}, n)
	for range n {
		work <- struct{}{}
	}
	close(work)
	for range window {
		w.run.Go(func() {
			for range work {
				p, err := w.q.Enter(t.Context(), by, w.last.Load())
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Second)
				w.mu.Lock()
				w.had[by.Client] += bytes
				w.mu.Unlock()
				w.last.Store(bytes)
				p.Leave(bytes)
				ended()
			}
		})
	}
	return first
}

// jain is Jain's index of fairness, 1 if all have the same, and the bytes of
// each.
func (w *world) jain() (index float64, had map[uint64]int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum, squares := 0.0, 0.0
	for _, n := range w.had {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return sum * sum / (float64(len(w.had)) * squares), maps.Clone(w.had)
}

// One client with one job, one with fifty, one with large chunks: each gets as
// many bytes as any other, for as long as all want some.
func TestFairOverClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(tier.Limit{Loads: 8})
		w.job(t, tier.By{Client: 1, Job: 1}, 2000, 64, 1000)
		for j := range 50 {
			w.job(t, tier.By{Client: 2, Job: uint64(j)}, 10+2*j, 16, 1000)
		}
		w.job(t, tier.By{Client: 3, Job: 1}, 500, 64, 4000)
		time.Sleep(65 * time.Second) // a tenth of the work: before, one large chunk is much
		for range 95 {
			time.Sleep(5 * time.Second)
			if j, had := w.jain(); j < 0.95 {
				t.Errorf("Jain %.3f of %v; want 0.95", j, had)
			}
		}
		w.run.Wait()
		w.rest(t)
	})
}

// rest checks that the queue is as if it were new.
func (w *world) rest(t *testing.T) {
	t.Helper()
	if st := w.q.Stats(); st != (tier.QueueStats{}) {
		t.Errorf("at the end: %+v", st)
	}
}

// The first loads are charged for much more than they bring, and clients come
// back for more while those of others are out: no client pays for that in the
// end.
func TestGuessTooHigh(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(tier.Limit{Loads: 32})
			w.last.Store(16_000)
			for _, c := range order {
				jobs := []int{1, 5, 50}[c]
				for j := range jobs {
					w.cautious(t, tier.By{Client: uint64(c), Job: uint64(j)}, 1000/jobs, 64, 1000)
				}
				time.Sleep(time.Second / 7)
			}
			w.checkFair(t, 9*time.Second, 80*time.Second)
		})
	}
}

// cautious is a job that has four loads at a time until the first one ends.
func (w *world) cautious(t *testing.T, by tier.By, n, window int, bytes int64) {
	first := min(n, 4)
	ended := w.job(t, by, first, first, bytes)
	w.run.Go(func() {
		<-ended
		w.job(t, by, n-first, window, bytes)
	})
}

// A client with small chunks gets as many bytes as one with large ones, though
// the only guess there is at what a load brings is what the last one brought.
func TestMixedSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(tier.Limit{Loads: 32, Bytes: 256_000})
		w.last.Store(64_000)
		w.job(t, tier.By{Client: 1, Job: 1}, 1000, 64, 64_000)
		w.job(t, tier.By{Client: 2, Job: 1}, 16_000, 64, 4_000)
		w.checkFair(t, 20*time.Second, 300*time.Second)
	})
}

// checkFair checks again and again, from one time on until another, that all
// have had about the same, and then that nothing is left.
func (w *world) checkFair(t *testing.T, from, to time.Duration) {
	t.Helper()
	for time.Sleep(from); from < to; from += 5 * time.Second {
		if j, had := w.jain(); j < 0.95 {
			t.Errorf("Jain %.3f of %v after %s; want 0.95", j, had, from)
		}
		time.Sleep(5 * time.Second)
	}
	w.run.Wait()
	w.rest(t)
}

// A short job is not kept waiting by a long one of the same client, nor by
// another client's many.
func TestShortAmongLong(t *testing.T) {
	for name, by := range map[string]tier.By{"same client": {Client: 1, Job: 99}, "other client": {Client: 2, Job: 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(tier.Limit{Loads: 4})
				w.job(t, tier.By{Client: 1, Job: 1}, 1000, 64, 1000)
				time.Sleep(10 * time.Second)
				start := time.Now()
				short := newWorld(tier.Limit{})
				short.q = w.q
				short.job(t, by, 4, 4, 1000)
				short.run.Wait()
				if d := time.Since(start); d > 4*time.Second {
					t.Errorf("4 chunks took %s beside a long job; want at most 4 s", d)
				}
				w.run.Wait()
				w.rest(t)
			})
		})
	}
}

// Idle work leaves room, and yields.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(tier.Limit{Loads: 8})
		w.job(t, tier.By{Client: 1, Idle: true}, 100, 20, 1000)
		synctest.Wait()
		if st := w.q.Stats(); st.Loads != 2 {
			t.Errorf("%d idle loads under way; want 2 of 8", st.Loads)
		}
		w.job(t, tier.By{Client: 2}, 80, 20, 1000)
		time.Sleep(10 * time.Second)
		w.mu.Lock()
		n := w.had[1]
		w.mu.Unlock()
		if n > 4000 {
			t.Errorf("idle work had %d bytes while others waited", n)
		}
		w.run.Wait()
		w.rest(t)
	})
}

func TestLimitBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := tier.NewQueue(tier.Limit{Loads: 100, Bytes: 10})
		big, err := q.Enter(t.Context(), tier.By{Client: 1}, 50) // one always may
		if err != nil {
			t.Fatal(err)
		}
		entered := make(chan *tier.Pass)
		for range 3 {
			go func() {
				p, err := q.Enter(t.Context(), tier.By{}, 5)
				if err != nil {
					t.Error(err)
				}
				entered <- p
			}()
		}
		synctest.Wait()
		if st := q.Stats(); st.Loads != 1 || st.Waiting != 3 {
			t.Errorf("behind a large one: %+v", st)
		}
		big.Leave(50)
		a, b := <-entered, <-entered
		synctest.Wait()
		if st := q.Stats(); st.Loads != 2 || st.Bytes != 10 || st.Waiting != 1 {
			t.Errorf("two that fit: %+v", st)
		}
		a.Leave(5)
		(<-entered).Leave(5)
		b.Leave(5)
	})
}

// Who gives up while waiting leaves nothing behind, also when let in at the
// same moment.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := tier.NewQueue(tier.Limit{Loads: 3, Bytes: 100})
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(20))*time.Second)
				defer cancel()
				p, err := q.Enter(ctx, tier.By{Client: uint64(i % 7), Job: uint64(i % 31), Idle: i%5 == 0}, int64(i%60))
				if err != nil {
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					return
				}
				time.Sleep(time.Second)
				p.Leave(int64(i % 50))
			})
		}
		wg.Wait()
		if st := q.Stats(); st != (tier.QueueStats{}) {
			t.Errorf("at the end: %+v", st)
		}
	})
}

// Clients that come back for one load at a time, each with none waiting meanwhile, are
// in turns with one that has many waiting: none of them gets less than three fifths of
// what a naive division of the loads gives it. (One that rests waits for its turn, too.)
func TestOneLoadAtATime(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				const loads, span = 4, 400
				w := newWorld(tier.Limit{Loads: loads})
				wants := make(map[uint64]float64) // loads a second, if all were let in at once
				for c := range uint64(5 + rng.IntN(30)) {
					window, rest := 1, time.Duration(rng.IntN(3000))*time.Millisecond
					if c == 0 {
						window, rest = 64, 0
					} else if rng.IntN(2) == 0 {
						rest = 0
					}
					wants[c] = float64(window) / (1 + rest.Seconds())
					for range window {
						w.again(t, tier.By{Client: c, Job: 1}, span*time.Second, rest)
					}
				}
				w.run.Wait()
				_, had := w.jain()
				for c, share := range divided(loads, wants) {
					if want := 0.6 * span * share * 1000; float64(had[c]) < want {
						t.Errorf("client %d of %d had %d bytes; want %.0f at least", c, len(wants), had[c], want)
					}
				}
				w.rest(t)
			})
		})
	}
}

// again loads one chunk after the other, with a rest in between.
func (w *world) again(t *testing.T, by tier.By, span, rest time.Duration) {
	end := time.Now().Add(span)
	w.run.Go(func() {
		for time.Now().Before(end) {
			p, err := w.q.Enter(t.Context(), by, 1000)
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Second)
			w.mu.Lock()
			w.had[by.Client] += 1000
			w.mu.Unlock()
			p.Leave(1000)
			time.Sleep(rest)
		}
	})
}

// divided is what each gets of so much: what it wants, or else as much as any other.
func divided(all float64, wants map[uint64]float64) map[uint64]float64 {
	gets := make(map[uint64]float64)
	for share := 0.0; len(gets) < len(wants); {
		share = all / float64(len(wants)-len(gets))
		full := true // none of those left wants less than its share
		for c, n := range wants {
			if _, ok := gets[c]; !ok && n < share {
				gets[c], full = n, false
				all -= n
			}
		}
		for c := range wants {
			if _, ok := gets[c]; full && !ok {
				gets[c] = share
			}
		}
	}
	return gets
}
