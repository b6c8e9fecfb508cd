package index

import (
	"encoding/binary"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/key"
)

const (
	// maxDead is how many points are remembered that are not live: those of which
	// a piece is missing yet, or went.
	maxDead = 1 << 14
	// maxWaits is how many pieces all of these have: some 12 MiB. Nothing that is stored
	// stands for them, and their memory stays with the table.
	maxWaits = 1 << 17
	// linksEach, for each chunk that may be stored, and maxLinks at most, is how many pieces
	// all points have, each counted for each that needs it. A point for which there is
	// no room is not counted.
	linksEach = 2
	maxLinks  = 1 << 21
	// maxShares is how many points a piece may have.
	maxShares = 1 << 10
	// MaxPieces is the most pieces of a point; one with more is not counted.
	MaxPieces = 1 << 11
	// batch is how many pieces are counted for points that came to life or died within
	// one call, and those of one point more. The others have their turn in the next calls.
	batch = 1 << 10
)

// Need says whether a live point needs a stored piece now.
type Need struct {
	Key    key.Key
	Full   bool // the last chunk of a full group
	Needed bool
}

// ResumePoints counts resume points and their pieces. Call New.
type ResumePoints struct {
	maxDead, maxWaits, maxLinks, batch int // others in tests

	spaces    map[key.SpaceID]*resumeSpace
	last      *resumeSpace // the one asked for last; nil for none
	pieces    base.Pool[piece]
	points    base.Pool[resumePoint]
	links     base.Pool[link]
	dead      []uint32 // points that were not live when they were put there, the oldest first
	waits     int      // pieces of these
	queue     []uint32 // points of which wanted is not counts, perhaps
	live      int
	uncounted uint64 // points that were not counted
	told      []Need // see Changed
}

// resumeSpace is the pieces of one space.
type resumeSpace struct {
	id     key.SpaceID
	pieces map[key.Hash]uint32
	filter *filter // of pieces; nil where they are few
	added  int     // to the filter
}

// piece is a chunk that points need.
type piece struct {
	hash  key.Hash
	space *resumeSpace
	first uint32 // of its links
	needs uint32 // points that count and need it
	of    uint32 // points that have it
	here  bool   // stored
	full  bool
}

// resumePoint is how much of a point's pieces is stored.
type resumePoint struct {
	first   uint32 // of its links
	pieces  uint32
	missing uint32 // of these, those that are not stored
	counts  bool   // among the needs of its pieces
	wanted  bool   // it is live, or may become so: it is to count
	queued  bool   // it is in queue
	waits   bool   // it is in dead
}

// link joins a piece and a point. Each of the two has a list of its own.
type link struct {
	piece, point uint32
	ofPiece      uint32 // the next of the piece
	before       uint32 // the one before that, or 0
	ofPoint      uint32 // the next of the point
}

// NewResumePoints returns an empty table for so many chunks as may be stored at most.
func NewResumePoints(chunks int) *ResumePoints {
	links := linksEach * min(chunks, maxLinks/linksEach)
	return &ResumePoints{maxDead: maxDead, maxWaits: min(maxWaits, links), maxLinks: links, batch: batch, spaces: make(map[key.SpaceID]*resumeSpace)}
}

// Declare makes a point known, which counts as live until one of its pieces goes: what
// is still to be stored comes soon. ends are the last chunks of its full groups, one at
// least, and needs the windows and states. here says whether a chunk is stored. A point
// with the same first end stays as it is. The result is good until the next call.
func (t *ResumePoints) Declare(ends, needs []key.Key, here func(key.Key) bool) []Need {
	t.told = t.told[:0]
	if t.Has(ends[0]) {
		return nil
	}
	if !t.hasRoom(ends, needs) {
		t.uncounted++
		return nil
	}
	b := t.points.Take()
	for _, k := range ends {
		t.join(b, k, true, here)
	}
	for _, k := range needs {
		t.join(b, k, false, here)
	}
	of := t.points.At(b)
	of.wanted = true
	if t.apply(b); of.missing > 0 {
		t.wait(b)
	} else {
		t.live++
	}
	t.settle()
	return t.told
}

// hasRoom reports whether a point with these pieces can be counted.
func (t *ResumePoints) hasRoom(ends, needs []key.Key) bool {
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

// Has reports whether a point ends with k.
func (t *ResumePoints) Has(k key.Key) bool {
	id := t.find(k)
	return id != 0 && t.pieces.At(id).full && t.pieces.At(id).first != 0
}

func (t *ResumePoints) find(k key.Key) uint32 {
	if sp := t.of(k.Space); sp != nil {
		return sp.find(&k.Hash)
	}
	return 0
}

// of returns the pieces of a space, or nil.
func (t *ResumePoints) of(id key.SpaceID) *resumeSpace {
	if t.last != nil && t.last.id == id {
		return t.last
	}
	sp := t.spaces[id]
	if sp != nil {
		t.last = sp
	}
	return sp
}

// join makes a chunk a piece of a point.
func (t *ResumePoints) join(b uint32, k key.Key, full bool, here func(key.Key) bool) {
	id := t.find(k)
	if id == 0 {
		sp := t.of(k.Space)
		if sp == nil {
			sp = &resumeSpace{id: k.Space, pieces: make(map[key.Hash]uint32)}
			t.spaces[k.Space], t.last = sp, sp
		}
		id = t.pieces.Take()
		*t.pieces.At(id) = piece{hash: k.Hash, space: sp, here: here(k), full: full}
		sp.add(k.Hash, id)
	}
	l, p, of := t.links.Take(), t.pieces.At(id), t.points.At(b)
	*t.links.At(l) = link{piece: id, point: b, ofPiece: p.first, ofPoint: of.first}
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
func (t *ResumePoints) Knows(id key.SpaceID) bool { return len(t.spaces) > 0 && t.of(id) != nil }

// Changed notes whether a chunk is stored. It returns the pieces of which it has become
// known whether they are needed, k among them if it has come, and others for which calls
// before had no time. The result is good until the next call.
func (t *ResumePoints) Changed(k key.Key, here bool) []Need {
	t.told = t.told[:0]
	t.change(t.find(k), here)
	t.settle()
	return t.told
}

func (t *ResumePoints) change(id uint32, here bool) {
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
			t.came(t.links.At(l).point)
		} else {
			t.went(t.links.At(l).point)
		}
	}
	if here {
		t.tell(p)
	}
}

// came counts one more piece of a point.
func (t *ResumePoints) came(b uint32) {
	of := t.points.At(b)
	if of.missing--; of.missing == 0 {
		t.live++
		t.want(b, true)
	}
}

// went counts one less. The point is not live then, nor will pieces that are still to
// come make it so.
func (t *ResumePoints) went(b uint32) {
	of := t.points.At(b)
	if of.missing++; of.missing == 1 {
		t.live--
	}
	t.want(b, false)
	t.wait(b)
}

// want has a point count among the needs of its pieces, or not, when its turn comes.
func (t *ResumePoints) want(b uint32, counts bool) {
	of := t.points.At(b)
	if of.wanted = counts; of.counts != counts && !of.queued {
		of.queued = true
		t.queue = append(t.queue, b)
	}
}

// settle takes from the queue, those of a batch of pieces at most.
func (t *ResumePoints) settle() {
	left := t.batch
	for len(t.queue) > 0 && left > 0 {
		b := t.queue[len(t.queue)-1]
		t.queue = t.queue[:len(t.queue)-1]
		of := t.points.At(b)
		if of.queued = false; of.counts != of.wanted {
			left -= int(of.pieces)
			t.apply(b)
		}
	}
	t.trim()
}

// apply has a point count as is wanted.
func (t *ResumePoints) apply(b uint32) {
	of := t.points.At(b)
	if of.counts == of.wanted {
		return
	}
	of.counts = of.wanted
	for l := of.first; l != 0; l = t.links.At(l).ofPoint {
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

func (t *ResumePoints) tell(p *piece) {
	if p.here {
		t.told = append(t.told, Need{key.Key{Space: p.space.id, Hash: p.hash}, p.full, p.needs > 0})
	}
}

// wait remembers a point that is not live.
func (t *ResumePoints) wait(b uint32) {
	if of := t.points.At(b); !of.waits {
		of.waits = true
		t.dead = append(t.dead, b)
		t.waits += int(of.pieces)
	}
}

// trim forgets the oldest points that are not live where there are too many, or those
// have too many pieces: a batch of pieces at most.
func (t *ResumePoints) trim() {
	for left := t.batch; left > 0 && (len(t.dead) > t.maxDead || t.waits > t.maxWaits && len(t.dead) > 1); {
		oldest := t.dead[0]
		t.dead = t.dead[1:]
		of := t.points.At(oldest)
		left -= int(of.pieces)
		t.waits -= int(of.pieces)
		if of.missing > 0 {
			of.wanted = false
			t.apply(oldest)
			t.forget(oldest)
		} else {
			of.waits = false // it has come to life
		}
	}
}

// forget drops a point that is not live, and the pieces that no other has.
func (t *ResumePoints) forget(b uint32) {
	for l := t.points.At(b).first; l != 0; {
		id, next := t.links.At(l).piece, t.links.At(l).ofPoint
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
	t.points.Give(b)
}

// unlink takes a link out of the list of its piece.
func (t *ResumePoints) unlink(l uint32) {
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

// ResumePointStats is a snapshot of a table.
type ResumePointStats struct {
	Live   int `json:"boundaries"`
	Pieces int `json:"pieces"` // of these and those that are remembered
	// Uncounted are points for which there was no room, or that have too many pieces.
	Uncounted uint64 `json:"uncounted"`
}

// Stats counts what the table has.
func (t *ResumePoints) Stats() ResumePointStats {
	return ResumePointStats{Live: t.live, Pieces: t.pieces.Used(), Uncounted: t.uncounted}
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
func (s *resumeSpace) add(h key.Hash, id uint32) {
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
func (s *resumeSpace) find(h *key.Hash) uint32 {
	if s.filter != nil && !s.filter.may(h) {
		return 0
	}
	return s.pieces[*h]
}
