package policy

import "math"

// gdsf evicts what has the lowest L + frequency × cost / size, where L is the
// priority of the last victim (Cherkasova, Improving WWW Proxies Performance
// with Greedy-Dual-Size-Frequency Caching Policy, HP Labs 1998); among equals,
// what was used longest ago. Priorities are set at use and stay while L grows,
// which ages what is no longer used.
//
// Refused entries leave the heap and come back with their priority.
type gdsf struct {
	nodes   nodes // seq: time of the last use
	worth   pages[worth]
	heap    heap
	floor   float64 // L
	now     int64
	inspect uint64
}

// worth is what one use of an entry is worth, and its priority.
type worth struct {
	perUse, priority float64
	uses             uint32
}

func newGDSF(int64) Policy { return &gdsf{} }

func (p *gdsf) Admit(uint64, int64) {}

func (p *gdsf) Add(id ID, m Meta) {
	p.nodes.enter(id)
	p.worth.reach(uint32(id))
	*p.worth.at(uint32(id)) = worth{perUse: float64(max(m.Cost, 1)) / float64(max(m.Size, 1))}
	p.use(id)
}

func (p *gdsf) Touch(id ID) {
	p.Remove(id)
	p.use(id)
}

func (p *gdsf) Remove(id ID) {
	n := p.nodes.resident(id)
	if n.place() == returned {
		p.heap.take(&p.nodes, id)
	}
	n.setPlace(absent)
}

func (p *gdsf) Allow(id ID) {
	if p.nodes.resident(id).place() == refused {
		p.push(id)
	}
}

func (p *gdsf) Evict(ok func(ID) bool) (ID, bool) {
	for {
		top, found := p.heap.top()
		if !found {
			return 0, false
		}
		p.heap.pop(&p.nodes)
		p.inspect++
		n := p.nodes.at(uint32(top.id))
		n.setPlace(refused)
		if ok(top.id) {
			n.setPlace(absent)
			// One that was refused for long may be below L; L never falls.
			p.floor = max(p.floor, p.worth.at(uint32(top.id)).priority)
			return top.id, true
		}
	}
}

func (p *gdsf) Steps() uint64 { return p.inspect + p.heap.steps }

// use counts a use of id, which is not in the heap.
func (p *gdsf) use(id ID) {
	p.now++
	p.nodes.at(uint32(id)).setSeq(p.now)
	w := p.worth.at(uint32(id))
	w.uses = max(w.uses, w.uses+1) // up to 2³²-1
	w.priority = p.floor + float64(w.uses)*w.perUse
	p.push(id)
}

// push puts id into the heap at its priority. Floats that are not negative
// are in the order of their bits.
func (p *gdsf) push(id ID) {
	bits := math.Float64bits(p.worth.at(uint32(id)).priority)
	p.heap.push(&p.nodes, id, rank{bits, p.nodes.at(uint32(id)).seq()})
}
