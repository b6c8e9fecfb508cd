package policy

// tenure learns how prefixes die. Only the ends of chains can go, so the
// residents are a set of whole prefixes. Each chunk is of a class
// (tenure_class.go); for each class the learner estimates, from reuses of
// residents and ghosts alike, how likely reuse is at each age
// (tenure_learner.go). Classes at an age are cells, ranked by the most reuse to
// be expected per time kept, and the victim is the front of the lowest cell
// (tenure_cells.go). A chunk that would itself be the lowest is not admitted.
//
// Time is counted in tokens asked for, so that a replay is deterministic and
// the length of a chunk does not matter.
type tenure struct {
	roll      roll          // all known chunks
	ids       pages[uint32] // for each ID, the tenant
	cells     cells
	learner   learner
	trust     trust
	now       int64 // tokens asked for before the request at hand
	span      int64 // tokens of the request at hand
	floor     int   // ghosts there may be however few are resident
	requests  int
	untrained int // requests since the last training
	resident  int
	chain     []uint32  // tenants of the request at hand
	deferred  *training // nil: observe trains
	inspect   uint64
}

// unannounced is the class of a chunk that was added without a request: that
// of a chunk after a short prompt of it alone.
var unannounced = class(1, true, defaultChunk, defaultChunk, NoHint)

const (
	defaultChunk = 512         // tokens
	ghostTokens  = 32768 * 512 // ghosts stand for so many tokens at least
)

func newTenure() *tenure {
	p := &tenure{floor: ghostTokens / defaultChunk, trust: trust{kept: 1}}
	p.train()
	return p
}

func (p *tenure) Miss(hash uint64, _ int64) {
	p.chain = append(p.chain[:0], p.roll.enrol(hash))
	p.observe(Request{})
}

func (p *tenure) Touch(id ID) {
	p.chain = append(p.chain[:0], p.tenantOf(id))
	p.observe(Request{})
}

func (p *tenure) Observe(r Request) {
	p.chain = p.chain[:0]
	for _, hash := range r.Chain {
		i := p.roll.enrol(hash)
		t := p.roll.at(i)
		if t.is(asked) {
			break // malformed: a chain has no chunk twice
		}
		t.mark |= asked
		p.chain = append(p.chain, i)
	}
	if len(p.chain) > 0 {
		p.observe(r)
	}
}

// Add makes a chunk resident. If its hash is resident under another ID
// already, it is a twin: a tenant that the hash does not lead to.
func (p *tenure) Add(id ID, m Meta) {
	p.ids.reach(uint32(id))
	slot := p.ids.at(uint32(id))
	if *slot != 0 {
		panic("policy: adding an entry that is resident")
	}
	i := p.roll.enrol(m.Hash)
	if p.roll.at(i).is(resident) {
		i = p.roll.enrolTwin(m.Hash)
	}
	t := p.roll.at(i)
	if t.is(ghostly) {
		p.roll.exorcise(i)
	} else {
		p.introduce(i, m.Uses)
	}
	t.mark |= resident
	t.id = id
	*slot = i
	p.resident++
	p.adopt(i, m.Parent)
	p.seat(i, atBack)
}

// introduce makes a tenant of no request known, as a short prompt of one chunk
// would, after so many uses.
func (p *tenure) introduce(i uint32, uses uint8) {
	t := p.roll.at(i)
	t.last = p.now
	t.class = class(min(max(int(uses), 1), maxCount), true, defaultChunk, defaultChunk, NoHint)
	p.roll.known++
	p.watch(i)
}

// adopt links a new resident to the tenant before it, which may have to be
// made: chains are added tail first.
func (p *tenure) adopt(i uint32, parent uint64) {
	t := p.roll.at(i)
	if parent == 0 || parent == t.hash {
		return
	}
	up := p.roll.enrol(parent)
	t.parent = up
	p.roll.at(up).kids++
	p.unseat(up)
	p.roll.at(up).mark &^= aside // it is offered again when its kids are gone
}

func (p *tenure) Remove(id ID) {
	i := p.tenantOf(id)
	p.leave(i)
	p.forget(i)
}

func (p *tenure) Evict(ok func(ID) bool) (ID, bool) {
	for {
		i := p.cells.lowest()
		if i == 0 {
			return 0, false
		}
		p.inspect++
		id := p.roll.at(i).id
		p.unseat(i)
		if !ok(id) {
			p.roll.at(i).mark |= aside
			continue
		}
		p.leave(i)
		if p.roll.at(i).is(twin) {
			p.forget(i)
		} else {
			p.roll.haunt(i)
		}
		return id, true
	}
}

// leave ends a residency. Its parent becomes a leaf at the front of its cell,
// so that chains peel from the tail.
func (p *tenure) leave(i uint32) {
	p.unseat(i)
	t := p.roll.at(i)
	*p.ids.at(uint32(t.id)) = 0
	t.mark &^= resident | aside
	t.id = 0
	p.resident--
	up := t.parent
	if t.parent = 0; up == 0 {
		return
	}
	u := p.roll.at(up)
	if u.kids--; u.kids > 0 {
		return
	}
	if u.is(resident) {
		p.seat(up, atFront)
	} else if !u.known() {
		p.roll.strike(up)
	}
}

// forget drops a tenant that is no longer resident. One with kids stays as a
// hole until the last of them goes.
func (p *tenure) forget(i uint32) {
	p.unwatch(i)
	p.roll.known--
	if t := p.roll.at(i); t.kids > 0 {
		return
	}
	p.roll.strike(i)
}

func (p *tenure) Allow(id ID) {
	i := p.tenantOf(id)
	if t := p.roll.at(i); t.is(aside) {
		t.mark &^= aside
		p.seat(i, byAge)
	}
}

func (p *tenure) Admit(hash, parent uint64) bool {
	own := cell(unannounced, 0)
	if i := p.roll.find(hash); i != 0 && p.roll.at(i).known() {
		t := p.roll.at(i)
		own = cell(t.class, bin(p.now-t.last))
	}
	up := uint32(0)
	if parent != 0 {
		up = p.roll.find(parent)
	}
	if int(p.cells.rank[own]) >= p.cells.lowestRankBut(up) {
		return true
	}
	if up != 0 && p.roll.at(up).is(seated) { // as if the chunk had come and gone
		p.unseat(up)
		p.seat(up, atFront)
	}
	return false
}

func (p *tenure) Seen(hash uint64) bool {
	i := p.roll.find(hash)
	return i != 0 && p.roll.at(i).known() && p.roll.at(i).uses() > 1
}

func (p *tenure) Steps() uint64 { return p.inspect }

func (p *tenure) tenantOf(id ID) uint32 {
	if int(id>>pageBits) < len(p.ids.dir) {
		if i := *p.ids.at(uint32(id)); i != 0 {
			return i
		}
	}
	panic("policy: the entry is not resident")
}
