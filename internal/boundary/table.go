package boundary

import "github.com/kvstored/kvstored/key"

const (
	// maxDead is how many boundaries are remembered that are not live: those of which
	// a piece is missing yet, or went.
	maxDead = 1 << 14
	// maxWaits is how many pieces all of these have. Nothing that is stored stands for them.
	maxWaits = 1 << 20
	// MaxPieces is the most pieces of a boundary; one with more is not counted.
	MaxPieces = 1 << 13
)

// Need says whether a live boundary needs a stored piece now.
type Need struct {
	Key    key.Key
	Full   bool // the last chunk of a full group
	Needed bool
}

// Table counts boundaries and their pieces. Call New.
type Table struct {
	maxDead, maxWaits int // smaller in tests

	spaces map[key.SpaceID]*space
	last   *space // the one asked for last; nil for none
	pieces pool[piece]
	bounds pool[bound]
	links  pool[link]
	dead   []uint32 // boundaries that were not live when they were put there, the oldest first
	waits  int      // pieces of these
	live   int
	told   []Need // see Changed
}

// space is the pieces of one space.
type space struct {
	id     key.SpaceID
	pieces map[key.Hash]uint32
}

// piece is a chunk that boundaries need.
type piece struct {
	hash  key.Hash
	space *space
	first uint32 // of its links
	needs uint32 // live boundaries that need it
	here  bool   // stored
	full  bool
}

// bound is a boundary.
type bound struct {
	first   uint32 // of its links
	pieces  uint32
	missing uint32 // of these, those that are not stored
	counts  bool   // among the needs of its pieces
	waits   bool   // it is in dead
}

// link joins a piece and a boundary. Each of the two has a list of its own.
type link struct {
	piece, bound uint32
	ofPiece      uint32 // the next of the piece
	ofBound      uint32 // the next of the boundary
}

// New returns an empty table.
func New() *Table {
	return &Table{maxDead: maxDead, maxWaits: maxWaits, spaces: make(map[key.SpaceID]*space)}
}

// Declare makes a boundary known, which counts as live until one of its pieces goes: what
// is still to be stored comes soon. ends are the last chunks of its full groups, one at
// least, and needs the windows and states. here says whether a chunk is stored. A boundary
// with the same first end stays as it is. The result is good until the next call.
func (t *Table) Declare(ends, needs []key.Key, here func(key.Key) bool) []Need {
	t.told = t.told[:0]
	if len(ends)+len(needs) > MaxPieces || t.Has(ends[0]) {
		return nil
	}
	b := t.bounds.take()
	for _, k := range ends {
		t.join(b, k, true, here)
	}
	for _, k := range needs {
		t.join(b, k, false, here)
	}
	if t.turn(b, true); t.bounds.at(b).missing > 0 {
		t.wait(b)
	} else {
		t.live++
	}
	return t.told
}

// Has reports whether a boundary ends with k.
func (t *Table) Has(k key.Key) bool {
	id := t.find(k)
	return id != 0 && t.pieces.at(id).full && t.pieces.at(id).first != 0
}

func (t *Table) find(k key.Key) uint32 {
	if sp := t.of(k.Space); sp != nil {
		return sp.pieces[k.Hash]
	}
	return 0
}

// of returns the pieces of a space, or nil.
func (t *Table) of(id key.SpaceID) *space {
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
func (t *Table) join(b uint32, k key.Key, full bool, here func(key.Key) bool) {
	id := t.find(k)
	if id == 0 {
		sp := t.of(k.Space)
		if sp == nil {
			sp = &space{id: k.Space, pieces: make(map[key.Hash]uint32)}
			t.spaces[k.Space], t.last = sp, sp
		}
		id = t.pieces.take()
		*t.pieces.at(id) = piece{hash: k.Hash, space: sp, here: here(k), full: full}
		sp.pieces[k.Hash] = id
	}
	l, p, of := t.links.take(), t.pieces.at(id), t.bounds.at(b)
	*t.links.at(l) = link{piece: id, bound: b, ofPiece: p.first, ofBound: of.first}
	p.first, of.first = l, l
	of.pieces++
	if !p.here {
		of.missing++
	}
}

// Knows reports whether a chunk of a space may be a piece.
func (t *Table) Knows(id key.SpaceID) bool { return len(t.spaces) > 0 && t.of(id) != nil }

// Changed notes whether a chunk is stored. It returns the pieces of which it has become
// known whether they are needed, k among them if it has come. The result is good until the next call.
func (t *Table) Changed(k key.Key, here bool) []Need {
	t.told = t.told[:0]
	id := t.find(k)
	if id == 0 {
		return nil
	}
	p := t.pieces.at(id)
	if p.here == here {
		if here { // perhaps in one tier more
			t.tell(p)
		}
		return t.told
	}
	p.here = here
	for l := p.first; l != 0; l = t.links.at(l).ofPiece {
		if here {
			t.came(t.links.at(l).bound)
		} else {
			t.went(t.links.at(l).bound)
		}
	}
	if here {
		t.tell(p)
	}
	return t.told
}

// came counts one more piece of a boundary.
func (t *Table) came(b uint32) {
	of := t.bounds.at(b)
	if of.missing--; of.missing == 0 {
		t.live++
		t.turn(b, true)
	}
}

// went counts one less. The boundary is not live then, nor will pieces that are still to
// come make it so.
func (t *Table) went(b uint32) {
	of := t.bounds.at(b)
	if of.missing++; of.missing == 1 {
		t.live--
	}
	t.turn(b, false)
	t.wait(b)
}

// turn has a boundary count among the needs of its pieces, or not.
func (t *Table) turn(b uint32, counts bool) {
	of := t.bounds.at(b)
	if of.counts == counts {
		return
	}
	of.counts = counts
	for l := of.first; l != 0; l = t.links.at(l).ofBound {
		p := t.pieces.at(t.links.at(l).piece)
		if counts {
			if p.needs++; p.needs == 1 {
				t.tell(p)
			}
		} else if p.needs--; p.needs == 0 {
			t.tell(p)
		}
	}
}

func (t *Table) tell(p *piece) {
	if p.here {
		t.told = append(t.told, Need{key.Key{Space: p.space.id, Hash: p.hash}, p.full, p.needs > 0})
	}
}

// wait remembers a boundary that is not live, and forgets the oldest such where there
// are too many, or those have too many pieces.
func (t *Table) wait(b uint32) {
	if of := t.bounds.at(b); !of.waits {
		of.waits = true
		t.dead = append(t.dead, b)
		t.waits += int(of.pieces)
	}
	for len(t.dead) > t.maxDead || t.waits > t.maxWaits && len(t.dead) > 1 {
		oldest := t.dead[0]
		t.dead = t.dead[1:]
		of := t.bounds.at(oldest)
		t.waits -= int(of.pieces)
		if of.missing > 0 {
			t.turn(oldest, false)
			t.forget(oldest)
		} else {
			of.waits = false // it has come to life
		}
	}
}

// forget drops a boundary that is not live, and the pieces that no other has.
func (t *Table) forget(b uint32) {
	for l := t.bounds.at(b).first; l != 0; {
		id, next := t.links.at(l).piece, t.links.at(l).ofBound
		t.unlink(id, l)
		t.links.give(l)
		if p := t.pieces.at(id); p.first == 0 {
			if delete(p.space.pieces, p.hash); len(p.space.pieces) == 0 {
				delete(t.spaces, p.space.id)
				t.last = nil
			}
			t.pieces.give(id)
		}
		l = next
	}
	t.bounds.give(b)
}

// unlink takes a link out of the list of a piece.
func (t *Table) unlink(id, l uint32) {
	at := &t.pieces.at(id).first
	for *at != l {
		at = &t.links.at(*at).ofPiece
	}
	*at = t.links.at(l).ofPiece
}

// Stats is a snapshot of a table.
type Stats struct {
	Boundaries int `json:"boundaries"` // live
	Pieces     int `json:"pieces"`     // of these and those that are remembered
}

// Stats counts what the table has.
func (t *Table) Stats() Stats { return Stats{Boundaries: t.live, Pieces: t.pieces.used} }
