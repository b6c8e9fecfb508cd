package index

import (
	"encoding/binary"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/key"
)

const (
	// maxDead is how many boundaries are remembered that are not live: those of which
	// a piece is missing yet, or went.
	maxDead = 1 << 14
	// maxWaits is how many pieces all of these have: some 12 MiB. Nothing that is stored
	// stands for them, and their memory stays with the table.
	maxWaits = 1 << 17
	// linksEach, for each chunk that may be stored, and maxLinks at most, is how many pieces
	// all boundaries have, each counted for each that needs it. A boundary for which there is
	// no room is not counted.
	linksEach = 2
	maxLinks  = 1 << 21
	// maxShares is how many boundaries a piece may have.
	maxShares = 1 << 10
	// MaxPieces is the most pieces of a boundary; one with more is not counted.
	MaxPieces = 1 << 11
	// batch is how many pieces are counted for boundaries that came to life or died within
	// one call, and those of one boundary more. The others have their turn in the next calls.
	batch = 1 << 10
)

// Need says whether a live boundary needs a stored piece now.
type Need struct {
	Key    key.Key
	Full   bool // the last chunk of a full group
	Needed bool
}

// Boundaries counts boundaries and their pieces. Call New.
type Boundaries struct {
	maxDead, maxWaits, maxLinks, batch int // others in tests

	spaces map[key.SpaceID]*boundarySpace
	last   *boundarySpace // the one asked for last; nil for none
	pieces base.Pool[part]
	bounds base.Pool[bound]
	links  base.Pool[link]
	dead   []uint32 // boundaries that were not live when they were put there, the oldest first
	waits  int      // pieces of these
	turns  []uint32 // boundaries of which wanted is not counts, perhaps
	live   int
	over   uint64 // boundaries that were not counted
	told   []Need // see Changed
}

// boundarySpace is the pieces of one space.
type boundarySpace struct {
	id     key.SpaceID
	pieces map[key.Hash]uint32
	filter *filter // of pieces; nil where they are few
	added  int     // to the filter
}

// part is a chunk that boundaries need.
type part struct {
	hash  key.Hash
	space *boundarySpace
	first uint32 // of its links
	needs uint32 // boundaries that count and need it
	of    uint32 // boundaries that have it
	here  bool   // stored
	full  bool
}

// bound is a boundary.
type bound struct {
	first   uint32 // of its links
	pieces  uint32
	missing uint32 // of these, those that are not stored
	counts  bool   // among the needs of its pieces
	wanted  bool   // it is live, or may become so: it is to count
	turning bool   // it is in turns
	waits   bool   // it is in dead
}

// link joins a piece and a boundary. Each of the two has a list of its own.
type link struct {
	piece, bound uint32
	ofPiece      uint32 // the next of the piece
	before       uint32 // the one before that, or 0
	ofBound      uint32 // the next of the boundary
}

// NewBoundaries returns an empty table for so many chunks as may be stored at most.
func NewBoundaries(chunks int) *Boundaries {
	links := linksEach * min(chunks, maxLinks/linksEach)
	return &Boundaries{maxDead: maxDead, maxWaits: min(maxWaits, links), maxLinks: links, batch: batch, spaces: make(map[key.SpaceID]*boundarySpace)}
}

// Declare makes a boundary known, which counts as live until one of its pieces goes: what
// is still to be stored comes soon. ends are the last chunks of its full groups, one at
// least, and needs the windows and states. here says whether a chunk is stored. A boundary
// with the same first end stays as it is. The result is good until the next call.
func (t *Boundaries) Declare(ends, needs []key.Key, here func(key.Key) bool) []Need {
	t.told = t.told[:0]
	if t.Has(ends[0]) {
		return nil
	}
	if !t.hasRoom(ends, needs) {
		t.over++
		return nil
	}
	b := t.bounds.Take()
	for _, k := range ends {
		t.join(b, k, true, here)
	}
	for _, k := range needs {
		t.join(b, k, false, here)
	}
	of := t.bounds.At(b)
	of.wanted = true
	if t.turn(b); of.missing > 0 {
		t.wait(b)
	} else {
		t.live++
	}
	t.settle()
	return t.told
}

// hasRoom reports whether a boundary with these pieces can be counted.
func (t *Boundaries) hasRoom(ends, needs []key.Key) bool {
	n := len(ends) + len(needs)
	if n > MaxPieces || t.links.Used()+n > t.maxLinks {
		return false
	}
	for _, ks := range [...][]key.Key{ends, needs} {
		for _, k := range ks {
			if id := t.find(k); id != 0 && t.pieces.At(id).of >= maxShares {
				return false
			}
		}
	}
	return true
}

// Has reports whether a boundary ends with k.
func (t *Boundaries) Has(k key.Key) bool {
	id := t.find(k)
	return id != 0 && t.pieces.At(id).full && t.pieces.At(id).first != 0
}

func (t *Boundaries) find(k key.Key) uint32 {
	if sp := t.of(k.Space); sp != nil {
		return sp.find(&k.Hash)
	}
	return 0
}

// of returns the pieces of a space, or nil.
func (t *Boundaries) of(id key.SpaceID) *boundarySpace {
	if t.last != nil && t.last.id == id {
		return t.last
	}
	sp := t.spaces[id]
	if sp != nil {
		t.last = sp
	}
	return sp
}

// join makes a chunk a piece of a boundary.
func (t *Boundaries) join(b uint32, k key.Key, full bool, here func(key.Key) bool) {
	id := t.find(k)
	if id == 0 {
		sp := t.of(k.Space)
		if sp == nil {
			sp = &boundarySpace{id: k.Space, pieces: make(map[key.Hash]uint32)}
			t.spaces[k.Space], t.last = sp, sp
		}
		id = t.pieces.Take()
		*t.pieces.At(id) = part{hash: k.Hash, space: sp, here: here(k), full: full}
		sp.add(k.Hash, id)
	}
	l, p, of := t.links.Take(), t.pieces.At(id), t.bounds.At(b)
	*t.links.At(l) = link{piece: id, bound: b, ofPiece: p.first, ofBound: of.first}
	if p.first != 0 {
		t.links.At(p.first).before = l
	}
	p.first, of.first = l, l
	p.of++
	of.pieces++
	if !p.here {
		of.missing++
	}
}

// Knows reports whether a chunk of a space may be a piece.
func (t *Boundaries) Knows(id key.SpaceID) bool { return len(t.spaces) > 0 && t.of(id) != nil }

// Changed notes whether a chunk is stored. It returns the pieces of which it has become
// known whether they are needed, k among them if it has come, and others for which calls
// before had no time. The result is good until the next call.
func (t *Boundaries) Changed(k key.Key, here bool) []Need {
	t.told = t.told[:0]
	t.change(t.find(k), here)
	t.settle()
	return t.told
}

func (t *Boundaries) change(id uint32, here bool) {
	if id == 0 {
		return
	}
	p := t.pieces.At(id)
	if p.here == here {
		if here { // perhaps in one tier more
			t.tell(p)
		}
		return
	}
	p.here = here
	for l := p.first; l != 0; l = t.links.At(l).ofPiece {
		if here {
			t.came(t.links.At(l).bound)
		} else {
			t.went(t.links.At(l).bound)
		}
	}
	if here {
		t.tell(p)
	}
}

// came counts one more piece of a boundary.
func (t *Boundaries) came(b uint32) {
	of := t.bounds.At(b)
	if of.missing--; of.missing == 0 {
		t.live++
		t.want(b, true)
	}
}

// went counts one less. The boundary is not live then, nor will pieces that are still to
// come make it so.
func (t *Boundaries) went(b uint32) {
	of := t.bounds.At(b)
	if of.missing++; of.missing == 1 {
		t.live--
	}
	t.want(b, false)
	t.wait(b)
}

// want has a boundary count among the needs of its pieces, or not, when its turn comes.
func (t *Boundaries) want(b uint32, counts bool) {
	of := t.bounds.At(b)
	if of.wanted = counts; of.counts != counts && !of.turning {
		of.turning = true
		t.turns = append(t.turns, b)
	}
}

// settle takes turns, those of a batch of pieces at most.
func (t *Boundaries) settle() {
	left := t.batch
	for len(t.turns) > 0 && left > 0 {
		b := t.turns[len(t.turns)-1]
		t.turns = t.turns[:len(t.turns)-1]
		of := t.bounds.At(b)
		if of.turning = false; of.counts != of.wanted {
			left -= int(of.pieces)
			t.turn(b)
		}
	}
	t.trim()
}

// turn has a boundary count as is wanted.
func (t *Boundaries) turn(b uint32) {
	of := t.bounds.At(b)
	if of.counts == of.wanted {
		return
	}
	of.counts = of.wanted
	for l := of.first; l != 0; l = t.links.At(l).ofBound {
		p := t.pieces.At(t.links.At(l).piece)
		if of.counts {
			if p.needs++; p.needs == 1 {
				t.tell(p)
			}
		} else if p.needs--; p.needs == 0 {
			t.tell(p)
		}
	}
}

func (t *Boundaries) tell(p *part) {
	if p.here {
		t.told = append(t.told, Need{key.Key{Space: p.space.id, Hash: p.hash}, p.full, p.needs > 0})
	}
}

// wait remembers a boundary that is not live.
func (t *Boundaries) wait(b uint32) {
	if of := t.bounds.At(b); !of.waits {
		of.waits = true
		t.dead = append(t.dead, b)
		t.waits += int(of.pieces)
	}
}

// trim forgets the oldest boundaries that are not live where there are too many, or those
// have too many pieces: a batch of pieces at most.
func (t *Boundaries) trim() {
	for left := t.batch; left > 0 && (len(t.dead) > t.maxDead || t.waits > t.maxWaits && len(t.dead) > 1); {
		oldest := t.dead[0]
		t.dead = t.dead[1:]
		of := t.bounds.At(oldest)
		left -= int(of.pieces)
		t.waits -= int(of.pieces)
		if of.missing > 0 {
			of.wanted = false
			t.turn(oldest)
			t.forget(oldest)
		} else {
			of.waits = false // it has come to life
		}
	}
}

// forget drops a boundary that is not live, and the pieces that no other has.
func (t *Boundaries) forget(b uint32) {
	for l := t.bounds.At(b).first; l != 0; {
		id, next := t.links.At(l).piece, t.links.At(l).ofBound
		t.unlink(l)
		t.links.Give(l)
		if p := t.pieces.At(id); p.first == 0 {
			if delete(p.space.pieces, p.hash); len(p.space.pieces) == 0 {
				delete(t.spaces, p.space.id)
				t.last = nil
			}
			t.pieces.Give(id)
		}
		l = next
	}
	t.bounds.Give(b)
}

// unlink takes a link out of the list of its piece.
func (t *Boundaries) unlink(l uint32) {
	at := t.links.At(l)
	p := t.pieces.At(at.piece)
	if p.of--; at.before == 0 {
		p.first = at.ofPiece
	} else {
		t.links.At(at.before).ofPiece = at.ofPiece
	}
	if at.ofPiece != 0 {
		t.links.At(at.ofPiece).before = at.before
	}
}

// BoundaryStats is a snapshot of a table.
type BoundaryStats struct {
	Boundaries int `json:"boundaries"` // live
	Pieces     int `json:"pieces"`     // of these and those that are remembered
	// Uncounted are boundaries for which there was no room, or that have too many pieces.
	Uncounted uint64 `json:"uncounted"`
}

// BoundaryStats counts what the table has.
func (t *Boundaries) Stats() BoundaryStats {
	return BoundaryStats{Boundaries: t.live, Pieces: t.pieces.Used(), Uncounted: t.over}
}

// filterFrom is how many pieces a space has before it gets a filter, whose 4 KiB are less
// than its table of pieces takes then.
const filterFrom = 256

// A filter is made anew after filterAdds pieces, as those that are gone stay in it, unless
// so many are there that it would say little.
const (
	filterAdds = 1 << 14
	filterMost = 1 << 13
)

// filter is a set of hashes that may have some more: most chunks that come and go are no
// pieces, and a look at one bit says so.
type filter [512]uint64

func bit(h *key.Hash) (word int, mask uint64) {
	n := (binary.LittleEndian.Uint64(h[:8]) ^ binary.LittleEndian.Uint64(h[8:])) * 0x9e3779b97f4a7c15 >> 49
	return int(n >> 6), 1 << (n & 63)
}

func (f *filter) add(h key.Hash) {
	word, mask := bit(&h)
	f[word] |= mask
}

func (f *filter) may(h *key.Hash) bool {
	word, mask := bit(h)
	return f[word]&mask != 0
}

// add makes a chunk a piece of the space.
func (s *boundarySpace) add(h key.Hash, id uint32) {
	s.pieces[h] = id
	old := s.added >= filterAdds && len(s.pieces) <= filterMost
	if s.filter != nil && !old {
		s.filter.add(h)
		s.added++
		return
	}
	if len(s.pieces) <= filterFrom {
		return
	}
	s.filter, s.added = new(filter), len(s.pieces)
	for h := range s.pieces {
		s.filter.add(h)
	}
}

// find is the number of a piece; 0 if the chunk is none.
func (s *boundarySpace) find(h *key.Hash) uint32 {
	if s.filter != nil && !s.filter.may(h) {
		return 0
	}
	return s.pieces[*h]
}
