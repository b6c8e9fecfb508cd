package policy

import (
	"math"
	mathbits "math/bits"
)

// cells are the leaves that may go, by class, age and step of cost: in each a list in
// the order in which they were last asked for, near enough. Every insertion is taken by
// a resident without resident kids that the owner has not refused. Each step of cost is
// a layer of its own: where nothing has a cost there is one.
type cells struct {
	layers [costSteps]*layer
	rank   [classes * bins]uint16 // of each cell of a layer, lowest first
	ranked [classes * bins]uint16 // the cell of each rank
	by     regime
}

// layer is the cells of one step of cost.
type layer struct {
	lists [classes * bins]chunkList
	taken bitmap // cells that are not empty
	order bitmap // the same by rank
}

// regime is what the victim is chosen by.
type regime uint8

const (
	byUse   regime = iota // the one asked for longest ago: see guarded
	byAge                 // by age, and by value within a bin of it: see trust
	byValue               // as learned
)

// seat is a cell by its layer and its rank there.
type seat struct{ step, rank int }

type bitmap [(classes*bins + 63) / 64]uint64

func (m *bitmap) set(i uint16)   { m[i/64] |= 1 << (i % 64) }
func (m *bitmap) clear(i uint16) { m[i/64] &^= 1 << (i % 64) }

// next is the first bit from `from` on that is set, or -1.
func (m *bitmap) next(from int) int {
	at, mask := from/64, ^uint64(0)<<(from%64)
	for ; at < len(m); at, mask = at+1, ^uint64(0) {
		if left := m[at] & mask; left != 0 {
			return at*64 + mathbits.TrailingZeros64(left)
		}
	}
	return -1
}

func cell(class uint16, bin int) uint16 { return uint16(class)*bins + uint16(bin) }

// A token at depth d of a prompt costs 1 + d/P to compute again, P being
// Request.PrefillDepth. Values are multiplied by the square root of that, in steps of
// a quarter octave of the root: step s begins where the cost is 2^(s/2), and the last
// has no end.
const costSteps = 1 << (8 - spotBits)

// costStarts are the begins of the steps, in units of P, and costRoots the factors that they
// multiply values by.
var costStarts, costRoots = func() (starts, roots [costSteps]float64) {
	for s := range starts {
		starts[s], roots[s] = math.Pow(2, float64(s)/2)-1, math.Pow(2, float64(s)/4)
	}
	return starts, roots
}()

// costStep is the step of a token at so many tokens into a prompt. Where depth is not
// weighed prefillDepth is 0.
func costStep(tokens, prefillDepth int) (s uint8) {
	if prefillDepth <= 0 {
		return 0
	}
	for s+1 < costSteps && float64(tokens) >= costStarts[s+1]*float64(prefillDepth) {
		s++
	}
	return s
}

type end uint8

const (
	atFront end = iota // goes first in its cell
	atBack
	byLast // at the back, or at the front if it is older than the one at the back
)

// insert makes a leaf one of the candidates. Chunks that are no leaf, no
// resident, refused or in a cell already are left alone.
func (p *tenure) insert(i uint32, where end) {
	t := p.chunks.At(i)
	if t.mark&(resident|inCell|passedOver) != resident || t.kids > 0 {
		return
	}
	t.setBin(bin(p.now - t.last))
	t.mark |= inCell
	l := p.cells.layers[t.step()]
	if l == nil {
		l = new(layer)
		p.cells.layers[t.step()] = l
	}
	c := cell(t.class, t.bin())
	r := &l.lists[c]
	if r.front == 0 {
		l.taken.set(c)
		l.order.set(p.cells.rank[c])
	} else if where == byLast && t.last < p.chunks.At(r.back).last {
		where = atFront
	}
	if where == atFront {
		p.chunks.pushFront(r, i)
	} else {
		p.chunks.pushBack(r, i)
	}
}

// takeOut takes a candidate out of its cell.
func (p *tenure) takeOut(i uint32) {
	t := p.chunks.At(i)
	if !t.is(inCell) {
		return
	}
	t.mark &^= inCell
	c, l := cell(t.class, t.bin()), p.cells.layers[t.step()]
	r := &l.lists[c]
	p.chunks.unlink(r, i)
	if r.front == 0 {
		l.taken.clear(c)
		l.order.clear(p.cells.rank[c])
	}
}

// age moves those in front of each cell on that have outgrown it, the oldest
// cells first, so that lists stay in order.
func (p *tenure) age() {
	for _, l := range p.cells.layers {
		if l != nil {
			ageLayer(p, l)
		}
	}
}

func ageLayer(p *tenure, l *layer) {
	for w := len(l.taken) - 1; w >= 0; w-- {
		for left := l.taken[w]; left != 0; {
			b := mathbits.Len64(left) - 1
			left &^= 1 << b
			c := w*64 + b
			young := p.now - binEnds[c%bins] // asked for later
			for i := l.lists[c].front; i != 0 && p.chunks.At(i).last <= young; i = l.lists[c].front {
				p.takeOut(i)
				p.insert(i, atBack)
			}
		}
	}
}

// before reports whether the entry at a goes before the one at b.
func (p *tenure) before(a, b seat) bool {
	if a.step == b.step {
		return a.rank < b.rank
	}
	x, y := p.cells.ranked[a.rank], p.cells.ranked[b.rank]
	if p.cells.by != byValue {
		if s, t := seniority(x), seniority(y); s != t {
			return s > t
		}
	}
	v, w := p.learner.value[x]*costRoots[a.step], p.learner.value[y]*costRoots[b.step]
	return v < w || v == w && a.step < b.step
}

// lowest finds the cell of the next victim that is not but; 0 is no chunk.
func (p *tenure) lowest(but uint32) (at seat, found bool) {
	for step, l := range p.cells.layers {
		if l == nil {
			continue
		}
		rank := l.order.next(0)
		for rank >= 0 && l.lists[p.cells.ranked[rank]] == (chunkList{but, but}) {
			rank = l.order.next(rank + 1)
		}
		if here := (seat{step, rank}); rank >= 0 && (!found || p.before(here, at)) {
			at, found = here, true
		}
	}
	return at, found
}

// victim returns the chunk that goes next, or 0.
func (p *tenure) victim() uint32 {
	at, found := p.lowest(0)
	switch {
	case !found:
		return 0
	case p.cells.by == byUse:
		return oldest(p, seniority(p.cells.ranked[at.rank]))
	}
	return p.cells.layers[at.step].lists[p.cells.ranked[at.rank]].front
}

// oldest returns, of the candidates of a seniority, the one asked for longest ago.
// None has a higher one, and the cells are ranked by it.
func oldest(p *tenure, senior int) (first uint32) {
	for _, l := range p.cells.layers {
		if l == nil {
			continue
		}
		for rank := l.order.next(0); rank >= 0 && seniority(p.cells.ranked[rank]) == senior; rank = l.order.next(rank + 1) {
			i := l.lists[p.cells.ranked[rank]].front
			if first == 0 || p.chunks.At(i).last < p.chunks.At(first).last {
				first = i
			}
		}
	}
	return first
}

// rearrange takes over a new ranking.
func (c *cells) rearrange(ranked []uint16) {
	for rank, cell := range ranked {
		c.ranked[rank], c.rank[cell] = cell, uint16(rank)
	}
	for _, l := range c.layers {
		if l == nil {
			continue
		}
		l.order = bitmap{}
		for rank, cell := range ranked {
			if l.lists[cell].front != 0 {
				l.order.set(uint16(rank))
			}
		}
	}
}
