package policy

// sieve evicts the first entry not used since its hand passed last (Zhang et
// al., SIEVE is Simpler than LRU, NSDI 2024). The hand moves from the oldest
// entry to the newest, forgives each used entry once, and begins again at the
// oldest when the newest is behind it or has gone. Entries never move.
//
// The place of the hand is a rank. Entries that the owner refused and allowed
// again wait in two heaps, for this round or the next. When the hand meets one
// of them it knows its neighbours in the list, so one that is forgiven is
// listed again in O(1).
type sieve struct {
	nodes   nodes
	ages    pages[age] // of all residents, refused or not
	newest  uint32     // ID + 1
	list    list
	hand    uint32 // the first listed entry ahead, ID + 1
	at      int64  // entries of this rank or a higher one are ahead
	ahead   heap
	behind  heap
	seq     int64
	inspect uint64
}

// age links the residents in the order in which they came, as ID + 1.
type age struct{ older, newer uint32 }

// used marks an entry used since the hand passed it last.
const used = 1

func newSieve(int64) Policy { return &sieve{} }

func (p *sieve) Miss(uint64, int64) {}

func (p *sieve) Add(id ID, _ Meta) {
	n := p.nodes.enter(id)
	if p.newest == 0 || p.nodes.at(p.newest-1).seq() < p.at {
		p.wrap()
	}
	p.seq++
	n.setSeq(p.seq)
	p.ages.reach(uint32(id))
	*p.ages.at(uint32(id)) = age{older: p.newest}
	if p.newest != 0 {
		p.ages.at(p.newest - 1).newer = uint32(id) + 1
	}
	p.newest = uint32(id) + 1
	p.list.pushBack(&p.nodes, id)
	if p.hand == 0 {
		p.hand = p.newest
	}
}

func (p *sieve) Touch(id ID) {
	p.nodes.resident(id).setMark(used)
}

func (p *sieve) Remove(id ID) {
	n := p.nodes.resident(id)
	switch n.place() {
	case listed:
		p.unlist(id)
	case returned:
		p.side(n.seq()).take(&p.nodes, id)
	}
	p.forget(id)
}

// Allow lists a refused entry again if its place is beside the hand, as that
// of the victim's parent is in most orders, and else leaves it to a heap.
func (p *sieve) Allow(id ID) {
	n := p.nodes.resident(id)
	if n.place() != refused {
		return
	}
	before, after := p.beside()
	between := (before == 0 || p.nodes.at(before-1).seq() < n.seq()) && (after == 0 || n.seq() < p.nodes.at(after-1).seq())
	if !between {
		p.side(n.seq()).push(&p.nodes, id)
		return
	}
	p.list.insert(&p.nodes, id, before, after)
	if n.seq() >= p.at {
		p.hand = uint32(id) + 1
	}
}

func (p *sieve) Evict(ok func(ID) bool) (ID, bool) {
	start := p.at
	for {
		id, found := p.next()
		if !found {
			if p.list.empty() && p.behind.n == 0 {
				p.at = start // all were refused, so the hand has not moved
				return 0, false
			}
			p.wrap()
			continue
		}
		n := p.nodes.at(uint32(id))
		p.inspect++
		p.at = n.seq() + 1
		accepted := ok(id)
		if accepted && n.mark() == used {
			p.forgive(id)
			continue
		}
		if n.place() == listed {
			p.unlist(id)
		} else {
			p.ahead.pop(&p.nodes)
		}
		if accepted {
			p.forget(id)
			return id, true
		}
		n.setPlace(refused)
	}
}

func (p *sieve) Steps() uint64 { return p.inspect + p.ahead.steps + p.behind.steps }

// next returns the entry that the hand meets next in this round.
func (p *sieve) next() (ID, bool) {
	top, found := p.ahead.top()
	if p.hand == 0 || found && p.nodes.rank(top).less(p.nodes.rank(ID(p.hand-1))) {
		return top, found
	}
	return ID(p.hand - 1), true
}

// wrap begins a round.
func (p *sieve) wrap() {
	p.at, p.hand = 0, p.list.front
	p.ahead, p.behind = p.behind, p.ahead
}

// forgive moves the hand past id, which it has met.
func (p *sieve) forgive(id ID) {
	n := p.nodes.at(uint32(id))
	n.setMark(0)
	if n.place() == listed {
		p.hand = n.next
		return
	}
	p.ahead.pop(&p.nodes)
	before, after := p.beside()
	p.list.insert(&p.nodes, id, before, after)
}

// beside returns the listed entries on both sides of the hand, as ID + 1.
func (p *sieve) beside() (before, after uint32) {
	if p.hand == 0 {
		return p.list.back, 0
	}
	return p.nodes.at(p.hand - 1).prev, p.hand
}

// side returns the heap for entries of this rank.
func (p *sieve) side(seq int64) *heap {
	if seq >= p.at {
		return &p.ahead
	}
	return &p.behind
}

func (p *sieve) unlist(id ID) {
	if p.hand == uint32(id)+1 {
		p.hand = p.nodes.at(uint32(id)).next
	}
	p.list.unlink(&p.nodes, id)
}

// forget ends the residency of id, which is in no list or heap.
func (p *sieve) forget(id ID) {
	p.nodes.at(uint32(id)).setPlace(absent)
	a := *p.ages.at(uint32(id))
	if a.older != 0 {
		p.ages.at(a.older - 1).newer = a.newer
	}
	if a.newer != 0 {
		p.ages.at(a.newer - 1).older = a.older
	} else {
		p.newest = a.older
	}
}
