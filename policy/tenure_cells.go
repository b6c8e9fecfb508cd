package policy

import mathbits "math/bits"

// cells are the leaves that may go, by class and age: in each a list in the
// order in which they were last asked for, near enough. Every insertion is taken by
// a resident without resident kids that the owner has not refused.
type cells struct {
	lists  [classes * bins]chunkList
	rank   [classes * bins]uint16 // of each cell, lowest first
	ranked [classes * bins]uint16 // the cell of each rank
	taken  bitmap                 // cells that are not empty
	order  bitmap                 // the same by rank
}

type bitmap [(classes*bins + 63) / 64]uint64

func (m *bitmap) set(i uint16)   { m[i/64] |= 1 << (i % 64) }
func (m *bitmap) clear(i uint16) { m[i/64] &^= 1 << (i % 64) }

func cell(class uint16, bin int) uint16 { return uint16(class)*bins + uint16(bin) }

type end uint8

const (
	atFront end = iota // goes first in its cell
	atBack
	byAge // at the back, or at the front if it is older than the one at the back
)

// insert makes a leaf one of the candidates. Chunks that are no leaf, no
// resident, refused or in a cell already are left alone.
func (p *tenure) insert(i uint32, where end) {
	t := p.chunks.at(i)
	if t.mark&(resident|inCell|passedOver) != resident || t.kids > 0 {
		return
	}
	t.bin = uint8(bin(p.now - t.last))
	t.mark |= inCell
	c := cell(t.class, int(t.bin))
	r := &p.cells.lists[c]
	if r.front == 0 {
		p.cells.taken.set(c)
		p.cells.order.set(p.cells.rank[c])
	} else if where == byAge && t.last < p.chunks.at(r.back).last {
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
	t := p.chunks.at(i)
	if !t.is(inCell) {
		return
	}
	t.mark &^= inCell
	c := cell(t.class, int(t.bin))
	r := &p.cells.lists[c]
	p.chunks.unlink(r, i)
	if r.front == 0 {
		p.cells.taken.clear(c)
		p.cells.order.clear(p.cells.rank[c])
	}
}

// age moves those in front of each cell on that have outgrown it, the oldest
// cells first, so that lists stay in order.
func (p *tenure) age() {
	for w := len(p.cells.taken) - 1; w >= 0; w-- {
		for left := p.cells.taken[w]; left != 0; {
			b := mathbits.Len64(left) - 1
			left &^= 1 << b
			c := w*64 + b
			young := p.now - binEnds[c%bins] // asked for later
			for i := p.cells.lists[c].front; i != 0 && p.chunks.at(i).last <= young; i = p.cells.lists[c].front {
				p.takeOut(i)
				p.insert(i, atBack)
			}
		}
	}
}

// lowest returns the next victim, or 0.
func (c *cells) lowest() uint32 {
	for w, left := range c.order {
		if left != 0 {
			return c.lists[c.ranked[w*64+mathbits.TrailingZeros64(left)]].front
		}
	}
	return 0
}

// lowestRankBut returns the rank of the next victim if i is none, and a number
// above all ranks if there is no other.
func (c *cells) lowestRankBut(i uint32) int {
	for w, left := range c.order {
		for ; left != 0; left &= left - 1 {
			rank := w*64 + mathbits.TrailingZeros64(left)
			if r := c.lists[c.ranked[rank]]; r.front != i || r.back != i {
				return rank
			}
		}
	}
	return len(c.ranked)
}

// rearrange takes over a new ranking.
func (c *cells) rearrange(ranked []uint16) {
	c.order = bitmap{}
	for rank, cell := range ranked {
		c.ranked[rank], c.rank[cell] = cell, uint16(rank)
		if c.lists[cell].front != 0 {
			c.order.set(uint16(rank))
		}
	}
}
