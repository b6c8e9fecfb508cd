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
	)
	for name, bytes := range map[string]uintptr{
		"lru, fifo, mru": perNode + perSlot,
		"lfu":            perNode + perSlot + 4, // a count
		"arc, s3fifo":    perNode + perGhost,
	} {
		if bytes > 40 {
			t.Errorf("%s: %d bytes an entry", name, bytes)
		}
	}
}
