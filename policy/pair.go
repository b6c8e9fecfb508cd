package policy

// pair is what arc and s3fifo have in common: two orders that weigh their
// entries, and ghosts. It asks the owner for hashes and sizes.
//
// A ghost that Miss met is promised: until Add, it stands in a queue of its
// own, so that no eviction in between can make the policy forget where the
// entry is to go. Promises weigh no more than the capacity, which is all that
// can be on its way in; the promise of an entry that is never added is dropped
// when newer ones take its room.
type pair struct {
	nodes    nodes // mark: upper, and bits of the policy's own
	orders   [2]order
	weights  [2]int64
	ghosts   ghosts
	of       func(ID) Meta
	capacity int64
	inspect  uint64
}

// upper marks the entries of the second order.
const upper = 1 << (markBits - 1)

// promised is the queue of ghosts for entries on their way in.
const promised = 3

func (p *pair) ReadMetaFrom(of func(ID) Meta) { p.of = of }

// promise takes note that a ghost was met.
func (p *pair) promise(hash uint64, size int64) {
	p.ghosts.put(promised, hash, weigh(size))
	p.ghosts.trim(promised, p.capacity)
}

// redeem ends a promise and reports whether there was one.
func (p *pair) redeem(hash uint64) bool {
	if p.ghosts.weight(promised) == 0 {
		return false
	}
	if queue, found := p.ghosts.find(hash); !found || queue != promised {
		return false
	}
	p.ghosts.drop(hash)
	return true
}

// enter makes id known, as the last of order i.
func (p *pair) enter(id ID, i int, size int64) {
	if !p.nodes.enter(id) {
		return
	}
	p.weights[i] += int64(weigh(size))
	p.put(id, i, 0)
}

// put makes id, in no order, the last of order i, with a new mark. Weights are
// the caller's.
func (p *pair) put(id ID, i int, mark uint8) {
	if i == 1 {
		mark |= upper
	}
	p.nodes.At(uint32(id)).setMark(mark)
	p.orders[i].enqueue(&p.nodes, id)
}

// in returns which order a resident is in; ok is false for one that is none.
func (p *pair) in(id ID) (i int, ok bool) {
	n := p.nodes.resident(id)
	if n == nil {
		return 0, false
	}
	return int(n.mark() / upper), true
}

// take takes out the first entry of order i that ok accepts. Weights are the
// caller's.
func (p *pair) take(i int, ok func(ID) bool) (ID, bool) {
	return p.orders[i].evict(&p.nodes, ok, &p.inspect)
}

// shift moves the weight of id from one order to the other.
func (p *pair) shift(id ID, from, to int) {
	size := int64(weigh(p.of(id).Size))
	p.weights[from] -= size
	p.weights[to] += size
}

// end takes the weight of id, which has left, from order i.
func (p *pair) end(id ID, i int) (hash uint64, size uint32) {
	m := p.of(id)
	size = weigh(m.Size)
	p.weights[i] -= int64(size)
	return m.Hash, size
}

// endAsGhost is end, and makes a ghost of id.
func (p *pair) endAsGhost(id ID, i, queue int) {
	hash, size := p.end(id, i)
	p.ghosts.put(queue, hash, size)
}

func (p *pair) Remove(id ID) {
	if i, ok := p.quit(id); ok {
		p.end(id, i)
	}
}

// quit takes id out of its order, and returns which. Weights are the caller's. ok is false
// for one that is not resident.
func (p *pair) quit(id ID) (i int, ok bool) {
	if i, ok = p.in(id); ok {
		p.orders[i].leave(&p.nodes, id)
	}
	return i, ok
}

// Proven reports whether id is in the second order.
func (p *pair) Proven(id ID) bool {
	i, ok := p.in(id)
	return ok && i == 1
}

func (p *pair) Allow(id ID) {
	if i, ok := p.in(id); ok {
		p.orders[i].allow(&p.nodes, id)
	}
}

func (p *pair) Steps() uint64 {
	return p.inspect + p.orders[0].back.steps + p.orders[1].back.steps
}
