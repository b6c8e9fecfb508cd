package policy

import "math"

// gdsf evicts the entry with the lowest L + frequency × cost / size, where L is
// the priority of the last victim (Cherkasova, Improving WWW Proxies
// Performance with Greedy-Dual-Size-Frequency Caching Policy, HP Labs 1998);
// among equals, the least recently used one. Priorities are set at use and stay
// while L grows, so that unused entries age. The owner says costs and sizes.
//
// Refused entries leave the heap and come back with their priority.
type gdsf struct {
	nodes      // seq: time of the last use; prev: uses
	priorities pages[float64]
	heap       heap
	of         func(ID) Meta
	floor      float64 // L
	now        int64
	inspect    uint64
}

func newGDSF(int64) Policy { return &gdsf{} }

func (p *gdsf) ReadMetaFrom(of func(ID) Meta) { p.of = of }

func (p *gdsf) Miss(uint64, int64) {}

func (p *gdsf) Add(id ID, m Meta) {
	p.enter(id).prev = 0
	p.priorities.reach(uint32(id))
	p.use(id, m)
}

func (p *gdsf) Touch(id ID) {
	p.Remove(id)
	p.use(id, p.of(id))
}

func (p *gdsf) Remove(id ID) {
	n := p.resident(id)
	if n.place() == returned {
		p.heap.take(p, id)
	}
	n.setPlace(absent)
}

func (p *gdsf) Allow(id ID) {
	if p.resident(id).place() == refused {
		p.heap.push(p, id)
	}
}

func (p *gdsf) Evict(ok func(ID) bool) (ID, bool) {
	for {
		id, found := p.heap.top()
		if !found {
			return 0, false
		}
		p.heap.pop(p)
		p.inspect++
		n := p.at(uint32(id))
		n.setPlace(refused)
		if ok(id) {
			n.setPlace(absent)
			// One that was refused for long may be below L; L never falls.
			p.floor = max(p.floor, *p.priorities.at(uint32(id)))
			return id, true
		}
	}
}

func (p *gdsf) Steps() uint64 { return p.inspect + p.heap.steps }

// use counts a use of id, which is not in the heap.
func (p *gdsf) use(id ID, m Meta) {
	p.now++
	n := p.at(uint32(id))
	n.setSeq(p.now)
	n.prev = max(n.prev, n.prev+1) // up to 2³²-1
	perUse := float64(max(m.Cost, 1)) / float64(max(m.Size, 1))
	*p.priorities.at(uint32(id)) = p.floor + float64(n.prev)*perUse
	p.heap.push(p, id)
}

// rank is by priority. Floats that are not negative are in the order of their
// bits.
func (p *gdsf) rank(id ID) rank {
	return rank{math.Float64bits(*p.priorities.at(uint32(id))), p.at(uint32(id)).seq()}
}
