package simulate

import "container/heap"

// gdsf evicts the block with the lowest L + uses, where L is the priority of the last victim
// (Cherkasova, Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching
// Policy, HP Labs 1998, with blocks of one size and cost); among equals, the least recently
// used one. Priorities are set at use and stay while L grows, so that unused blocks age.
type gdsf struct {
	blocks   []valued
	heap     []uint32
	floor    int // L
	now      int
	capacity int
}

type valued struct {
	uses, priority, last int
	at                   int // in the heap, + 1; 0 = not there
}

func newGDSF(distinct, capacity int) *gdsf {
	return &gdsf{blocks: make([]valued, distinct), capacity: capacity}
}

func (g *gdsf) len() int { return len(g.heap) }

func (g *gdsf) has(b uint32) bool { return g.blocks[b].at > 0 }

func (g *gdsf) access(_ int, b uint32) (hit bool) {
	e := &g.blocks[b]
	if hit = g.has(b); !hit {
		for len(g.heap) >= g.capacity {
			old := heap.Pop(g).(uint32)
			g.floor = g.blocks[old].priority
		}
		e.uses = 0
		heap.Push(g, b)
	}
	g.now++
	e.uses++
	e.priority, e.last = g.floor+e.uses, g.now
	heap.Fix(g, e.at-1)
	return hit
}

// Len, Less, Swap, Push and Pop are for package heap.
func (g *gdsf) Len() int { return len(g.heap) }

func (g *gdsf) Less(i, j int) bool {
	a, b := &g.blocks[g.heap[i]], &g.blocks[g.heap[j]]
	return a.priority < b.priority || a.priority == b.priority && a.last < b.last
}

func (g *gdsf) Swap(i, j int) {
	g.heap[i], g.heap[j] = g.heap[j], g.heap[i]
	g.blocks[g.heap[i]].at, g.blocks[g.heap[j]].at = i+1, j+1
}

func (g *gdsf) Push(b any) {
	g.heap = append(g.heap, b.(uint32))
	g.blocks[b.(uint32)].at = len(g.heap)
}

func (g *gdsf) Pop() any {
	last := len(g.heap) - 1
	b := g.heap[last]
	g.heap = g.heap[:last]
	g.blocks[b].at = 0
	return b
}
