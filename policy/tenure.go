package policy

import (
	"math"

	"github.com/kvstored/kvstored/internal/base"
)

// tenure learns how prefixes die. Only the ends of chains can go, so the
// residents are a set of whole prefixes. Each chunk is of a class
// (tenure_class.go); for each class the learner estimates, from reuses of
// residents and ghosts alike, how likely reuse is at each age
// (tenure_learner.go). Classes at an age are cells, ranked by the most reuse to
// be expected per time kept, and the victim is the front of the lowest cell
// (tenure_cells.go). A chunk that would itself be the lowest is not admitted. Where
// the owner says how cost grows with depth, values are multiplied by its root.
//
// Time is counted in tokens asked for, so that a replay is deterministic and
// the length of a chunk does not matter.
type tenure struct {
	chunks    chunkTable         // all known chunks
	ids       base.Pages[uint32] // for each ID, the chunk
	cells     cells
	learner   learner
	trust     trust
	now       int64 // tokens asked for before the request at hand
	span      int64 // tokens of the request at hand
	fresh     int   // tokens of it that were new
	tokens    int   // of its prompt
	floor     int   // ghosts there may be however few are resident
	most      int   // floor is at most that; see Bound
	roomy     bool  // it has held roomyTokens
	requests  int
	untrained int // requests since the last training
	resident  int
	chain     []uint32  // chunks of the request at hand
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
	p := &tenure{floor: ghostTokens / defaultChunk, most: math.MaxInt, trust: trust{kept: 1}}
	p.train()
	return p
}

func (p *tenure) Bound(most int) {
	p.most = most
	p.floor = min(p.floor, most)
}

func (p *tenure) Miss(hash uint64, _ int64) {
	p.chain = append(p.chain[:0], p.chunks.findOrAdd(hash))
	p.observe(Request{})
}

func (p *tenure) Touch(id ID) {
	if i := p.chunkOf(id); i != 0 {
		p.chain = append(p.chain[:0], i)
		p.observe(Request{})
	}
}

func (p *tenure) Observe(r Request) {
	p.chain = p.chain[:0]
	for _, hash := range r.Chain {
		i := p.chunks.findOrAdd(hash)
		t := p.chunks.At(i)
		if t.is(asked) {
			break // malformed: a chain has no chunk twice
		}
		t.mark |= asked
		p.chain = append(p.chain, i)
	}
	switch {
	case len(p.chain) == 0:
	case r.Beside:
		observeBeside(p, r)
	default:
		p.observe(r)
	}
}

// Add makes a chunk resident. If its hash is resident under another ID
// already, it is a twin: a chunk that the hash does not lead to.
func (p *tenure) Add(id ID, m Meta) {
	p.ids.Reach(uint32(id))
	slot := p.ids.At(uint32(id))
	if *slot != 0 {
		base.Broken(errResident, id)
		return
	}
	i := p.chunks.findOrAdd(m.Hash)
	if p.chunks.At(i).is(resident) {
		i = p.chunks.records.Take()
		*p.chunks.At(i) = chunk{hash: m.Hash, mark: twin}
	}
	t := p.chunks.At(i)
	ghost := t.is(ghostly)
	if ghost {
		p.chunks.removeGhost(i)
	} else {
		p.addUnobserved(i, m.Uses)
	}
	t.mark |= resident
	t.id = id
	*slot = i
	p.resident++
	p.linkParent(i, m.Parent)
	p.insert(i, atBack)
	if !ghost {
		p.bound(2) // the ghost of the entry that goes for it, and one more
	}
}

// addUnobserved makes a chunk of no request known, as a short prompt of one chunk
// would, after so many uses.
func (p *tenure) addUnobserved(i uint32, uses uint8) {
	t := p.chunks.At(i)
	t.last = p.now
	t.class = class(min(max(int(uses), 1), maxCount), true, defaultChunk, defaultChunk, NoHint)
	t.setStep(0)
	p.chunks.known++
	p.watch(i)
}

// linkParent links a new resident to the chunk before it, which may have to be
// made: chains are added tail first.
func (p *tenure) linkParent(i uint32, parent uint64) {
	t := p.chunks.At(i)
	if parent == 0 || parent == t.hash {
		return
	}
	up := p.chunks.findOrAdd(parent)
	t.parent = up
	p.chunks.At(up).kids++
	p.takeOut(up)
	p.chunks.At(up).mark &^= passedOver // it is offered again when its kids are gone
}

func (p *tenure) Remove(id ID) {
	if i := p.chunkOf(id); i != 0 {
		p.endResidency(i)
		p.forget(i)
	}
}

func (p *tenure) Evict(ok func(ID) bool) (ID, bool) {
	for {
		i := p.victim()
		if i == 0 {
			return 0, false
		}
		p.inspect++
		id := p.chunks.At(i).id
		p.takeOut(i)
		if !ok(id) {
			p.chunks.At(i).mark |= passedOver
			continue
		}
		p.endResidency(i)
		if p.chunks.At(i).is(twin) {
			p.forget(i)
		} else {
			p.chunks.addGhost(i)
		}
		return id, true
	}
}

// endResidency ends a residency. Its parent becomes a leaf at the front of its cell,
// so that chains peel from the tail.
func (p *tenure) endResidency(i uint32) {
	p.takeOut(i)
	t := p.chunks.At(i)
	*p.ids.At(uint32(t.id)) = 0
	t.mark &^= resident | passedOver
	t.id = 0
	p.resident--
	up := t.parent
	if t.parent = 0; up == 0 {
		return
	}
	u := p.chunks.At(up)
	if u.kids--; u.kids > 0 {
		return
	}
	if u.is(resident) {
		p.insert(up, atFront)
	} else if !u.known() {
		p.chunks.delete(up)
	}
}

// forget drops a chunk that is no longer resident. One with kids stays as a
// hole until the last of them goes.
func (p *tenure) forget(i uint32) {
	p.unwatch(i)
	p.chunks.known--
	if t := p.chunks.At(i); t.kids > 0 {
		return
	}
	p.chunks.delete(i)
}

func (p *tenure) Allow(id ID) {
	if i := p.chunkOf(id); i != 0 && p.chunks.At(i).is(passedOver) {
		p.chunks.At(i).mark &^= passedOver
		p.insert(i, byLast)
	}
}

func (p *tenure) Admit(hash, parent uint64) bool {
	if p.cells.by == byUse {
		return true
	}
	own := seat{rank: int(p.cells.rank[cell(unannounced, 0)])}
	if i := p.chunks.find(hash); i != 0 && p.chunks.At(i).known() {
		t := p.chunks.At(i)
		own = seat{t.step(), int(p.cells.rank[cell(t.class, bin(p.now-t.last))])}
	}
	up := uint32(0)
	if parent != 0 {
		up = p.chunks.find(parent)
	}
	if low, found := p.lowest(up); found && !p.before(own, low) {
		return true
	}
	if up != 0 && p.chunks.At(up).is(inCell) { // as if the chunk had come and gone
		p.takeOut(up)
		p.insert(up, atFront)
	}
	return false
}

func (p *tenure) Seen(hash uint64) bool {
	i := p.chunks.find(hash)
	return i != 0 && p.chunks.At(i).known() && p.chunks.At(i).uses() > 1
}

func (p *tenure) Steps() uint64 { return p.inspect }

// chunkOf is the chunk of a resident id, and 0 for any other.
func (p *tenure) chunkOf(id ID) uint32 {
	if uint32(id) < p.ids.Len() {
		if i := *p.ids.At(uint32(id)); i != 0 {
			return i
		}
	}
	base.Broken(errAbsent, id)
	return 0
}
