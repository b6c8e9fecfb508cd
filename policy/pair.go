package policy

// pair is what arc and s3fifo have in common: two orders that weigh their
// entries, and ghosts.
//
// A ghost that Admit met is promised: until Add, it stands in a queue of its
// own, so that no eviction in between can make the policy forget where the
// entry is to go. Promises weigh no more than the capacity, which is all that
// can be on its way in; what is never added makes room in time.
type pair struct {
	nodes    nodes         // tag: size; mark: upper, and what the policy puts there
	hashes   pages[uint64] // of the residents
	orders   [2]order
	weights  [2]int64
	ghosts   ghosts
	capacity int64
	inspect  uint64
}

// upper marks what is in the second order.
const upper = 0x80

// promised is the queue of ghosts for entries on their way in.
const promised = 3

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

// enter makes id known. It is in no order yet.
func (p *pair) enter(id ID, m Meta) {
	n := p.nodes.enter(id)
	n.tag, n.mark = weigh(m.Size), 0
	p.hashes.reach(uint32(id))
	*p.hashes.at(uint32(id)) = m.Hash
}

// put makes id, in no order, the last of order i, with a new mark.
func (p *pair) put(id ID, i int, mark uint8) {
	n := p.nodes.at(uint32(id))
	n.mark = mark
	if i == 1 {
		n.mark |= upper
	}
	p.weights[i] += int64(n.tag)
	p.orders[i].enqueue(&p.nodes, id)
}

// in returns which order a resident is in.
func (p *pair) in(id ID) int { return int(p.nodes.resident(id).mark >> 7) }

// leave takes id out of its order.
func (p *pair) leave(id ID) {
	i := p.in(id)
	p.orders[i].leave(&p.nodes, id)
	p.weights[i] -= int64(p.nodes.at(uint32(id)).tag)
}

// take takes out the first entry of order i that ok accepts.
func (p *pair) take(i int, ok func(ID) bool) (ID, bool) {
	id, found := p.orders[i].evict(&p.nodes, ok, &p.inspect)
	if found {
		p.weights[i] -= int64(p.nodes.at(uint32(id)).tag)
	}
	return id, found
}

// haunt makes a ghost of id, which has left.
func (p *pair) haunt(queue int, id ID) {
	p.ghosts.put(queue, *p.hashes.at(uint32(id)), p.nodes.at(uint32(id)).tag)
}

func (p *pair) Remove(id ID) { p.leave(id) }

func (p *pair) Allow(id ID) { p.orders[p.in(id)].allow(&p.nodes, id) }

func (p *pair) Steps() uint64 {
	return p.inspect + p.orders[0].back.steps + p.orders[1].back.steps
}
