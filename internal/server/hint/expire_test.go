package hint

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"
)

// The heap of deadlines gives room back when most of them are over, and stays in order.
func TestDeadlinesShrink(t *testing.T) {
	const n = 50_000
	var d deadlines
	rng, begin := rand.New(rand.NewPCG(1, 2)), time.Unix(0, 0)
	for range n {
		heap.Push(&d, &grant{until: begin.Add(time.Duration(rng.IntN(n)) * time.Second)})
	}
	var last time.Time
	for len(d) > 0 {
		g := heap.Remove(&d, 0).(*grant)
		if g.until.Before(last) {
			t.Fatalf("%v comes after %v", g.until, last)
		}
		last = g.until
		if room := cap(d); room > leastRoom && room > 4*(len(d)+1) {
			t.Fatalf("room for %d, with %d left", room, len(d))
		}
	}
}
