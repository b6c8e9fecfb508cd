package policy

// pair is what arc and s3fifo have in common: two orders that weigh their
// entries, and ghosts.
//
// A ghost that Admit met is promised: until Add, it stands in a queue of its
// own, so that no eviction in between can make the policy forget where the
// entry is to go. Promises weigh no more than the capacity, which is all that
// can be on its way in; what is never added makes room in time.
type pair struct {
	nodes    nodes
	members  pages[member]
	orders   [2]order
	weights  [2]int64
	ghosts   ghosts
	capacity int64
	inspect  uint64
}

// member is what a pair knows of a resident.
type member struct {
	hash uint64
	size uint32
	mark uint8 // upper, and what the policy puts there
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
	p.nodes.enter(id)
	p.members.reach(uint32(id))
	*p.members.at(uint32(id)) = member{hash: m.Hash, size: weigh(m.Size)}
}

// put makes id, in no order, the last of order i, with a new mark.
func (p *pair) put(id ID, i int, mark uint8) {
	m := p.members.at(uint32(id))
	m.mark = mark
	if i == 1 {
		m.mark |= upper
	}
	p.weights[i] += int64(m.size)
	p.orders[i].enqueue(&p.nodes, id)
}

// in returns which order a resident is in.
func (p *pair) in(id ID) int { return int(p.resident(id).mark >> 7) }

func (p *pair) resident(id ID) *member {
	p.nodes.resident(id)
	return p.members.at(uint32(id))
}

// leave takes id out of its order.
func (p *pair) leave(id ID) {
	i := p.in(id)
	p.orders[i].leave(&p.nodes, id)
	p.weights[i] -= int64(p.members.at(uint32(id)).size)
}

// take takes out the first entry of order i that ok accepts.
func (p *pair) take(i int, ok func(ID) bool) (ID, bool) {
	id, found := p.orders[i].evict(&p.nodes, ok, &p.inspect)
	if found {
		p.weights[i] -= int64(p.members.at(uint32(id)).size)
	}
	return id, found
}

// haunt makes a ghost of id, which has left.
func (p *pair) haunt(queue int, id ID) {
	m := p.members.at(uint32(id))
	p.ghosts.put(queue, m.hash, m.size)
}

func (p *pair) Remove(id ID) { p.leave(id) }

func (p *pair) Allow(id ID) { p.orders[p.in(id)].allow(&p.nodes, id) }

func (p *pair) Steps() uint64 {
	return p.inspect + p.orders[0].back.steps + p.orders[1].back.steps
}
