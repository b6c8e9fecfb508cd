package arena

import (
	"context"
	"slices"

	"github.com/kvstored/kvstored/internal/base"
)

const (
	// maxMoved is how many blocks one Compact moves at most: the largest block
	// in place of those of 64 KiB.
	maxMoved = 1024
	// candidates is how many runs one Compact looks at.
	candidates = 4
	// walkRound is how many extents are looked at in one lock round, which
	// keeps it for about a microsecond.
	walkRound = 64
)

// Compact returns a block as Alloc does where enough is free, but nowhere in
// one run: it clears a run by moving the blocks in it into free pieces
// elsewhere. As many bytes must be free as the block takes; then nothing has to
// be evicted for it. It moves sealed blocks with one reference, as much as
// the new block takes at most, and takes as long as copying that. ErrFull means
// that it found no such run, or that its blocks were taken hold of meanwhile;
// blocks it has moved by then stay moved.
//
// move is called without locks with a block, its copy, and its tag. True
// means that the owner of the block's reference has put the copy, with a
// reference of its own, in its place, and gives no further references of the
// block; the owner's reference passes to Compact. False means that nothing has
// changed.
//
// One call is at work at a time, others wait for it or the end of ctx.
func (a *Arena) Compact(ctx context.Context, n int, move func(from, to Block) bool) (Block, error) {
	if n <= 0 || n > MaxPayload || int64(n) > a.capacity {
		return Block{}, ErrTooLarge
	}
	select {
	case a.compacting <- struct{}{}:
	case <-ctx.Done():
		return Block{}, context.Cause(ctx)
	}
	defer func() { <-a.compacting }()
	c := &a.clearing
	c.need, c.move = padded(int32(n)), move
	defer func() { c.move = nil }()
	for _, w := range c.windows() {
		if ctx.Err() != nil {
			return Block{}, context.Cause(ctx)
		}
		if c.clear(w.off) {
			return c.finish(n)
		}
		c.giveUp()
	}
	return Block{}, ErrFull
}

// clearing is the run that a Compact is emptying. While it does so all of the
// run is handed out: its free pieces to the clearing, its blocks, once they
// were moved, by the reference that their owner had.
type clearing struct {
	arena *Arena
	need  int64
	move  func(from, to Block) bool

	found  [candidates]window
	pieces []Extent // around a candidate
	room   []Extent // free pieces of the run that were handed out to it
	moved  []Block
}

// window is a run that may be cleared, and the bytes that are to be moved.
type window struct{ off, cost int64 }

// windows returns the runs around the largest free pieces, those with the
// least to move first.
func (c *clearing) windows() []window {
	var seeds [candidates]Extent
	c.arena.mu.Lock()
	n := c.arena.mu.space.Largest(seeds[:])
	c.arena.mu.Unlock()
	found := c.found[:0]
	for _, s := range seeds[:n] {
		if w, ok := c.around(s); ok {
			found = append(found, w)
		}
	}
	slices.SortFunc(found, func(a, b window) int { return int(a.cost - b.cost) })
	return found
}

// around returns the run to clear that contains a free piece, if there is one:
// the one that begins at a multiple of its length, unless another has half as
// much to move. Runs at the cheapest places would leave gaps between them
// that are too short for one more, a quarter of all room (Rényi's parking
// constant).
func (c *clearing) around(seed Extent) (window, bool) {
	c.pieces = c.pieces[:0]
	c.gather(seed.Off-1, true)
	slices.Reverse(c.pieces)
	c.gather(seed.Off, false)
	if len(c.pieces) == 0 {
		return window{}, false
	}
	w, ok := c.cheapest()
	if even, fits := c.at(seed.Off / c.need * c.need); fits && even.cost/2 <= w.cost {
		return even, true
	}
	return w, ok
}

// at is the run that begins at off, if it lies within the pieces.
func (c *clearing) at(off int64) (window, bool) {
	w, end := window{off: off}, int64(0)
	for _, p := range c.pieces {
		end = p.Off + p.Bytes
		if end > off && p.Off < off+c.need {
			w.cost += toMove(p)
		}
	}
	return w, c.pieces[0].Off <= off && off+c.need <= end
}

// cheapest is the run within the pieces that has the least to move.
func (c *clearing) cheapest() (w window, ok bool) {
	var sum, cost int64
	first := 0
	for _, p := range c.pieces {
		sum += p.Bytes
		cost += toMove(p)
		for sum-c.pieces[first].Bytes >= c.need {
			sum -= c.pieces[first].Bytes
			cost -= toMove(c.pieces[first])
			first++
		}
		if sum < c.need || ok && w.cost <= cost {
			continue
		}
		w, ok = window{c.pieces[first].Off, cost}, true
		if c.pieces[first].Free { // only as much of it as is needed
			w.off += sum - c.need
		}
	}
	return w, ok
}

// toMove is how many bytes of a piece are to be moved.
func toMove(p Extent) int64 {
	if p.Free {
		return 0
	}
	return p.Bytes
}

// gather appends the pieces from off on (down, if back) up to what cannot be
// moved, or until they are as long as the run.
func (c *clearing) gather(off int64, back bool) {
	for left, more := c.need, true; more && left > 0; {
		more = false
		n := len(c.pieces)
		c.arena.mu.Lock()
		c.arena.mu.space.Walk(off, back, func(p Extent) bool {
			if !c.movable(p) || len(c.pieces)-n == walkRound {
				more = len(c.pieces)-n == walkRound
				return false
			}
			c.pieces = append(c.pieces, p)
			left -= p.Bytes
			if !back && p.Off < off { // a run may begin inside a piece
				left += off - p.Off
			}
			return left > 0
		})
		c.arena.mu.Unlock()
		if more = more && len(c.pieces) < 2*maxMoved; more {
			last := c.pieces[len(c.pieces)-1]
			if off = last.Off - 1; !back {
				off = last.Off + last.Bytes
			}
		}
	}
}

// movable reports whether a piece is free, or a block that can probably be
// moved. The arena's mutex is held, so a block that is handed out has its id;
// one that is as large as the run leaves a hole that is as useful.
func (c *clearing) movable(p Extent) bool {
	if p.Free {
		return true
	}
	if p.Tag == 0 || p.Bytes >= c.need {
		return false
	}
	s := c.arena.state(p.Tag)
	return s.isSealed() && s.refs.Load() == 1
}

// clear empties the run that begins at off. If it is false there was something
// in the way, and the rest is to be given up.
func (c *clearing) clear(off int64) bool {
	c.pieces = c.pieces[:0]
	c.gather(off, false)
	end := off + c.need
	if n := len(c.pieces); n == 0 || n > maxMoved || c.pieces[n-1].Off+c.pieces[n-1].Bytes < end {
		return false
	}
	for part := range slices.Chunk(c.pieces, walkRound) {
		if !c.claim(part, off, end) {
			return false
		}
	}
	for _, p := range c.pieces {
		if !p.Free && !c.shift(p) {
			return false
		}
	}
	return true
}

// claim hands the free ones of some pieces out to the clearing, as far as they
// lie in the run.
func (c *clearing) claim(part []Extent, off, end int64) bool {
	c.arena.mu.Lock()
	defer c.arena.mu.Unlock()
	for _, p := range part {
		if !p.Free {
			continue
		}
		from, to := max(p.Off, off), min(p.Off+p.Bytes, end)
		if !c.arena.mu.space.Reserve(from, to-from) {
			return false
		}
		c.room = append(c.room, Extent{Off: from, Bytes: to - from})
	}
	return true
}

// shift moves one block out of the run.
func (c *clearing) shift(p Extent) bool {
	from, ok := c.arena.share(p)
	if !ok {
		return false
	}
	to, err := c.arena.Alloc(from.Len())
	if err != nil {
		from.Release()
		return false
	}
	sum := to.Write(from.Bytes())
	to.SealSum(sum)
	to.SetTag(from.Tag())
	if sum != from.Sum() || !c.move(from, to) { // wrong bytes are for a reader to find
		to.Release()
		from.Release()
		return false
	}
	from.Release() // the owner's is left
	c.moved = append(c.moved, from)
	return from.Refs() == 1
}

// share takes a second reference of the block that is a piece, if that is still
// so, and the block is sealed and has one.
func (a *Arena) share(p Extent) (Block, bool) {
	s := a.state(p.Tag)
	if !s.refs.CompareAndSwap(1, 2) {
		return Block{}, false
	}
	b := Block{a: a, id: p.Tag, gen: s.gen.Load()}
	if s.off != p.Off || padded(s.n) != p.Bytes || !s.isSealed() {
		b.Release()
		return Block{}, false
	}
	return b, true
}

// finish makes one block of n bytes of the run, which is empty.
func (c *clearing) finish(n int) (Block, error) {
	defer c.forget()
	a := c.arena
	off := int64(-1)
	for _, b := range c.moved {
		a.freed(b.id)
	}
	a.mu.Lock()
	for _, p := range c.room {
		a.mu.space.Free(p.Off, p.Bytes)
		off = least(off, p.Off)
	}
	for _, b := range c.moved {
		s := b.live()
		off = least(off, s.off)
		a.mu.space.Free(s.off, int64(s.n))
		a.mu.spare = append(a.mu.spare, b.id)
		s.refs.Store(0)
		s.gen.Add(1)
	}
	if !a.mu.space.ReserveTag(off, int64(n), a.nextID()) {
		a.mu.Unlock()
		base.Broken("arena: a run that was cleared is not free")
		return Block{}, ErrFull
	}
	id := a.takeID()
	a.mu.freed.Wake() // what is left of the last block
	a.mu.Unlock()
	return a.begin(id, off, n), nil
}

func least(a, b int64) int64 {
	if a < 0 {
		return b
	}
	return min(a, b)
}

// giveUp frees the cleared part of the run.
func (c *clearing) giveUp() {
	c.arena.mu.Lock()
	for _, p := range c.room {
		c.arena.mu.space.Free(p.Off, p.Bytes)
	}
	if len(c.room) > 0 {
		c.arena.mu.freed.Wake()
	}
	c.arena.mu.Unlock()
	for _, b := range c.moved {
		b.Release()
	}
	c.forget()
}

func (c *clearing) forget() { c.room, c.moved = c.room[:0], c.moved[:0] }
