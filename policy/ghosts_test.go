package policy

import (
	"math/rand/v2"
	"testing"
	"unsafe"
)

// TestGhosts compares with maps and slices, while the table grows and is
// emptied again and again.
func TestGhosts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var g ghosts
	type entry struct {
		queue int
		size  uint32
	}
	model := make(map[uint64]entry)
	var order [2][]uint64 // may hold what has gone elsewhere since
	weights := [2]int64{}
	forget := func(hash uint64) {
		if e, ok := model[hash]; ok {
			weights[e.queue] -= int64(e.size)
			delete(model, hash)
			for i, h := range order[e.queue] {
				if h == hash {
					order[e.queue] = append(order[e.queue][:i], order[e.queue][i+1:]...)
					break
				}
			}
		}
	}
	for step := range 50_000 {
		hash := r.Uint64N(1500) // small numbers, as some owners' hashes are
		if hash%2 == 0 {
			hash <<= 20
		}
		switch op := r.IntN(8); {
		case op < 5:
			e := entry{r.IntN(2), 1 + r.Uint32N(9)}
			g.put(e.queue, hash, e.size)
			forget(hash)
			model[hash] = e
			weights[e.queue] += int64(e.size)
			order[e.queue] = append(order[e.queue], hash)
		case op < 7:
			g.drop(hash)
			forget(hash)
		case step%100 == 0:
			q, limit := r.IntN(2), r.Int64N(4000)
			g.trim(q, limit)
			for weights[q] > limit {
				forget(order[q][0])
			}
		}
		e, want := model[hash]
		queue, got := g.find(hash)
		if got != want || got && queue != e.queue || g.weight(0) != weights[0] || g.weight(1) != weights[1] || int(g.index.Len()) != len(model) {
			t.Fatalf("step %d: hash %d in queue %d, %v, want %d, %v; weights %d, %d, want %d; %d ghosts, want %d",
				step, hash, queue, got, e.queue, want, g.weight(0), g.weight(1), weights, g.index.Len(), len(model))
		}
	}
}

// Chains stay short for hashes that are small numbers, in a row or not, as in a
// replay, or multiples.
func TestSpread(t *testing.T) {
	const n = 40_000
	for name, hash := range map[string]func(i uint64) uint64{
		"in a row":  func(i uint64) uint64 { return i },
		"in pieces": func(i uint64) uint64 { return i/10*40 + i%10 },
		"multiples": func(i uint64) uint64 { return i << 12 },
		"high":      func(i uint64) uint64 { return i << 16 },
	} {
		var g ghosts
		for i := range uint64(n) {
			g.put(0, hash(i+1), 1)
		}
		looked := 0
		for i := range uint64(n) {
			h := uint32(hash(i + 1))
			for at := g.index.Head(spread(uint64(h))); at != g.find32(h); at = g.record(at).chain {
				looked++
			}
			looked++
		}
		if looked > 3*n {
			t.Errorf("%s: %.2f records looked at for each found", name, float64(looked)/n)
		}
	}
}

// TestGhostQueueIsDense: a queue has room for its ghosts and not for those
// that were asked for before their time, for any number of these and at any
// place in the queue. No call looks at more than three runs for that, and most
// at a few places.
func TestGhostQueueIsDense(t *testing.T) {
	const n = 6_000
	r := rand.New(rand.NewPCG(1, 2))
	shuffled := r.Perm(n)
	for name, play := range map[string]func(w *watchedGhosts){
		"nearly all": func(w *watchedGhosts) { // but the first of 16
			w.fill(10*n, func(i uint64) {
				if i -= min(i, 20); i%16 != 0 {
					w.drop(i)
				}
			}, n)
		},
		"the older":   func(w *watchedGhosts) { w.fill(10*n, func(i uint64) { w.drop(i / 2) }, n) },
		"the younger": func(w *watchedGhosts) { w.fill(10*n, func(i uint64) { w.drop(i - 3*(i%3)) }, n) },
		"any":         func(w *watchedGhosts) { w.fill(10*n, func(i uint64) { w.drop(i - min(i, r.Uint64N(n))) }, n) },
		"all but the oldest, and none comes": func(w *watchedGhosts) {
			w.fill(n, nil, n)
			for i := uint64(1); i < n-5; i++ {
				w.drop(i)
			}
			w.trim(1)
		},
		"all but some, from the youngest": func(w *watchedGhosts) {
			w.fill(n, nil, n)
			for i := uint64(n - 1); i > 0; i-- {
				if i%500 != 0 {
					w.drop(i)
				}
			}
		},
		"a quarter behind the oldest, then that": func(w *watchedGhosts) {
			w.fill(n, nil, n)
			for i := uint64(1); i < n/4; i++ {
				w.drop(i)
			}
			w.trim(1)
		},
		"many, in no order": func(w *watchedGhosts) {
			w.fill(n, nil, n)
			for _, i := range shuffled[:n-100] {
				w.drop(uint64(i))
			}
		},
		"two come, two go": func(w *watchedGhosts) { // about the room of two runs
			w.fill(3*runSize, nil, n)
			for i := uint64(3 * runSize); i < n; i += 2 {
				w.put(i)
				w.put(i + 1)
				w.drop(i - 1 - mergeAt)
				w.drop(i - mergeAt)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := watchedGhosts{T: t}
			play(&w)
			if each := float64(w.g.looked) / float64(w.calls); each > 2*runSize/(runSize-mergeAt)+2 {
				t.Errorf("%.1f places looked at a call", each)
			}
			for oldest := int64(-1); w.g.index.Len() > 0; {
				left := w.g.index.Len() - 1
				at := int64(w.g.record(w.g.queues[0].oldest()).hash)
				if at <= oldest {
					t.Fatalf("%d is older than %d", oldest, at)
				}
				oldest = at
				w.trim(1)
				if w.g.index.Len() != left {
					t.Fatalf("%d ghosts, want %d", w.g.index.Len(), left)
				}
			}
		})
	}
}

// watchedGhosts counts what each call of a single queue looks at, and the
// runs that it leaves.
type watchedGhosts struct {
	*testing.T
	g     ghosts
	calls uint64
}

func (w *watchedGhosts) put(hash uint64) { w.call(func() { w.g.put(0, hash, 1) }) }

func (w *watchedGhosts) drop(hash uint64) { w.call(func() { w.g.drop(hash) }) }

// trim forgets the n oldest.
func (w *watchedGhosts) trim(n int64) {
	for ; n > 0; n-- {
		w.call(func() { w.g.trim(0, w.g.weight(0)-1) })
	}
}

// fill puts hashes below n, no more than most at a time.
func (w *watchedGhosts) fill(n uint64, after func(i uint64), most int64) {
	for i := range n {
		w.put(i)
		if after != nil {
			after(i)
		}
		w.trim(w.g.weight(0) - most)
	}
}

func (w *watchedGhosts) call(do func()) {
	w.Helper()
	before := w.g.looked
	do()
	w.calls++
	if looked := w.g.looked - before; looked > 3*runSize {
		w.Fatalf("one call looked at %d places", looked)
	}
	if w.calls%100 != 0 && w.g.index.Len() > 10 {
		return // walking the queue is slow
	}
	runs, live := uint32(0), uint32(0)
	for r := w.g.queues[0].front; r != 0; r = w.g.run(r).next {
		runs++
		live += w.g.run(r).live
	}
	if limit := 2*w.g.index.Len()/mergeAt + 3; runs > limit || live != w.g.index.Len() {
		w.Fatalf("%d runs for %d ghosts, want at most %d, for %d", runs, live, limit, w.g.index.Len())
	}
}

// TestGhostsKnowHalfAHash: hashes below 2³² are exact; others are as their
// lower half is.
func TestGhostsKnowHalfAHash(t *testing.T) {
	var g ghosts
	g.put(1, 7<<32|5, 1)
	if q, found := g.find(5); !found || q != 1 {
		t.Errorf("queue %d, %v", q, found)
	}
	if _, found := g.find(7); found {
		t.Error("the upper half was found")
	}
}

// TestBytesAnEntry: what the package comment promises; BenchmarkBytes weighs it.
func TestBytesAnEntry(t *testing.T) {
	const (
		perNode  = unsafe.Sizeof(node{})
		perSlot  = unsafe.Sizeof(ID(0))       // of a heap
		perGhost = unsafe.Sizeof(ghost{}) + 4 // and a bucket
		// Records and runs of one ghost where there are as many as there may be.
		thin = float64(unsafe.Sizeof(ghost{})*runSize+unsafe.Sizeof(run{})) * 2 / mergeAt
	)
	if thin+4 > 2*float64(perGhost) {
		t.Errorf("a ghost takes up to %.1f bytes", thin+4)
	}
	for name, bytes := range map[string]uintptr{
		"lru, fifo, mru": perNode + perSlot,
		"lfu":            perNode + 4 + unsafe.Sizeof(bucket{}), // a tag, and each has a frequency of its own
		"arc, s3fifo":    perNode + perGhost + perSlot,
	} {
		if bytes > 40 {
			t.Errorf("%s: %d bytes an entry", name, bytes)
		}
	}
}
