package policy

import "github.com/kvstored/kvstored/internal/base"

// lfu evicts the entry that was used least often since it was added; among
// equals, the one that reached that count first. A new entry counts as used
// once. A heap has them in that order, but for those that were refused: of
// these only count and rank remain.
type lfu struct {
	nodes
	counts  base.Pages[uint32]
	heap    heap
	seq     int64
	inspect uint64
}

func newLFU(int64) Policy { return new(lfu) }

func (p *lfu) Miss(uint64, int64) {}

func (p *lfu) Add(id ID, _ Meta) {
	if !p.nodes.enter(id) {
		return
	}
	p.counts.Reach(uint32(id))
	*p.counts.At(uint32(id)) = 0
	p.use(id)
	p.heap.push(p, id)
}

// use counts one more use, up to 2³²-1.
func (p *lfu) use(id ID) {
	count := p.counts.At(uint32(id))
	*count = max(*count, *count+1)
	p.seq++
	p.nodes.At(uint32(id)).setSeq(p.seq)
}

func (p *lfu) Touch(id ID) {
	n := p.nodes.resident(id)
	if n == nil {
		return
	}
	p.use(id)
	if n.place() == returned {
		p.heap.fall(p, id)
	} else {
		p.heap.push(p, id)
	}
}

func (p *lfu) Remove(id ID) {
	n := p.nodes.resident(id)
	if n == nil {
		return
	}
	if n.place() == returned {
		p.heap.take(p, id)
	}
	n.setPlace(absent)
}

func (p *lfu) Allow(id ID) {
	if n := p.nodes.resident(id); n != nil && n.place() == refused {
		p.heap.push(p, id)
	}
}

func (p *lfu) Evict(ok func(ID) bool) (ID, bool) {
	for {
		id, found := p.heap.top()
		if !found {
			return 0, false
		}
		p.heap.pop(p)
		p.inspect++
		n := p.nodes.At(uint32(id))
		n.setPlace(absent)
		if ok(id) {
			return id, true
		}
		n.setPlace(refused)
	}
}

func (p *lfu) Steps() uint64 { return p.inspect + p.heap.steps }

func (p *lfu) rank(id ID) rank {
	return rank{uint64(*p.counts.At(uint32(id))), p.nodes.At(uint32(id)).seq()}
}
