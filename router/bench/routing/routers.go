package main

import (
	"math"
	"math/rand/v2"
)

// robin sends to each in turn.
type robin struct {
	n, next int
}

func (r *robin) choose(float64, *running) (int, int) {
	r.next = (r.next + 1) % r.n
	return r.next, 0
}
func (*robin) first(float64, int, *running, []uint64) {}
func (*robin) last(float64, int, *running)            {}

// least sends to the engine with the fewest requests under way; of equal ones by
// chance.
type least struct {
	open []int
	rnd  *rand.Rand
}

func (l *least) take() int {
	best, ties := 0, 0
	for i, n := range l.open {
		switch {
		case n < l.open[best] || i == 0:
			best, ties = i, 1
		case n == l.open[best]:
			if ties++; l.rnd.IntN(ties) == 0 {
				best = i
			}
		}
	}
	l.open[best]++
	return best
}
func (l *least) choose(float64, *running) (int, int)    { return l.take(), 0 }
func (*least) first(float64, int, *running, []uint64)   {}
func (l *least) last(_ float64, engine int, _ *running) { l.open[engine]-- }

// sticky has sessions stay where they began.
type sticky struct {
	least
	at map[uint64]int
}

func (s *sticky) choose(_ float64, r *running) (int, int) {
	n, known := s.at[r.session]
	if known {
		s.open[n]++
		return n, 0
	}
	n = s.take()
	s.at[r.session] = n
	return n, 0
}

// dynamo has the lowest cost: blocks of prefill to come, and blocks in use.
type dynamo struct {
	settings
	view    []map[uint64]bool // what each engine is known to have
	prefill []int             // tokens that are to be computed
	active  []int             // blocks of requests under way
	cost    map[*request]int  // tokens of those whose prefill is to come
	rnd     *rand.Rand
}

func newDynamo(s settings, rnd *rand.Rand) *dynamo {
	d := &dynamo{settings: s, prefill: make([]int, s.workers), active: make([]int, s.workers), cost: make(map[*request]int), rnd: rnd}
	for range s.workers {
		d.view = append(d.view, make(map[uint64]bool))
	}
	return d
}

func (d *dynamo) choose(_ float64, r *running) (int, int) {
	best, lowest, ties, said := 0, math.Inf(1), 0, 0
	for i := range d.view {
		has := 0
		for has < len(r.blocks) && d.view[i][r.blocks[has]] {
			has++
		}
		hit := min(has*d.blockTokens, r.tokens-1)
		cost := float64(d.prefill[i]+r.tokens-hit)/float64(d.blockTokens) + float64(d.active[i]+len(r.blocks))
		switch {
		case cost < lowest:
			best, lowest, ties, said = i, cost, 1, hit
		case cost == lowest:
			if ties++; d.rnd.IntN(ties) == 0 {
				best, said = i, hit
			}
		}
	}
	d.cost[r.request] = r.tokens - said
	d.prefill[best] += r.tokens - said
	d.active[best] += len(r.blocks)
	return best, said
}

func (d *dynamo) first(_ float64, engine int, r *running, gone []uint64) {
	d.prefill[engine] -= d.cost[r.request]
	delete(d.cost, r.request)
	for _, b := range r.blocks {
		d.view[engine][b] = true
	}
	for _, b := range gone {
		delete(d.view[engine], b)
	}
}

func (d *dynamo) last(_ float64, engine int, r *running) { d.active[engine] -= len(r.blocks) }

// tree is SGLang's: it keeps the prompts that it sent, in a cache by last use for each
// engine.
type tree struct {
	least
	sent []*engine
}

const (
	treeShare    = 0.5
	treeAbsolute = 32
	treeRelative = 1.0001
)

func (t *tree) choose(_ float64, r *running) (int, int) {
	low, high := t.open[0], t.open[0]
	for _, n := range t.open {
		low, high = min(low, n), max(high, n)
	}
	best, most, small := 0, -1, 0
	for i, e := range t.sent {
		if n := e.known(r.blocks); n > most {
			best, most = i, n
		}
		if e.order.Len() < t.sent[small].order.Len() {
			small = i
		}
	}
	said := 0
	switch {
	case high-low > treeAbsolute && float64(high) > treeRelative*float64(low):
		best = t.take()
	case float64(most) > treeShare*float64(len(r.blocks)):
		t.open[best]++
		said = most
	default:
		best = small
		t.open[best]++
	}
	t.sent[best].use(r.blocks)
	return best, said
}
