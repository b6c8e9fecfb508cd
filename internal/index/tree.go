package index

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"math/rand/v2"

	"github.com/kvstored/kvstored/internal/base"
)

// Hash names a chunk within its space, and also a space. The zero Hash is no
// chunk: as a parent it is the root.
type Hash = [16]byte

// Loc is a set of places a chunk is in; the owner gives the bits their
// meaning. 0 is a placeholder.
type Loc = uint8

// ErrInconsistent says that a chain to be linked contradicts the known ones:
// a chunk with another parent, twice in one chain, below itself, or with the
// zero hash. Nothing was changed.
var ErrInconsistent = errors.New("inconsistent chain")

// Tree is the index. The zero Tree is not usable; call New.
type Tree struct {
	seed   [3]uint64
	maxRun int // smaller in tests
	slots  slots
	runs   runs
	table  base.Index      // from space and hash to slots
	ids    map[Hash]uint32 // index into spaces
	spaces []space         // 0 is not used

	freeSpaces []uint32
	chunks     int
	holes      int      // placeholders
	prunable   []uint32 // runs whose end may be placeholders with nothing below; may be stale
	scratch    []uint32 // of hasRepeat
}

// space has two virtual runs: root, above the first chunks of prompts, and
// limbo, above chunks whose parent is not known.
type space struct {
	id          Hash
	root, limbo uint32
	chunks      uint32 // with at least one location
}

// NewTree returns an empty tree.
func NewTree() *Tree {
	t := &Tree{
		seed:   [3]uint64{rand.Uint64(), rand.Uint64(), rand.Uint64()},
		maxRun: maxRun,
		ids:    map[Hash]uint32{},
		spaces: make([]space, 1),
	}
	t.table = base.NewIndex(1, t.hashOf, t.slots.next)
	return t
}

// Match looks a chain up of which the first from chunks were matched before, and returns
// how many leading chunks are known, placeholders included. It writes the locations of
// what follows to locs, which bounds the answer when it is shorter than chain, and the
// marks to marks, unless that is nil; it is as long as locs. Every hash is compared.
// Match does not allocate.
//
// Callers bound a long chain's share of their lock by matching it in pieces, chain[:k]
// with growing k, until known is less than k. A change in between is not looked at again;
// where chunk from-1 is gone, known is from. Where chunk from-1 lies does not matter, only
// what follows it.
func (t *Tree) Match(space Hash, chain []Hash, from int, locs []Loc, marks []uint8) (known int) {
	chain = chain[:min(len(chain), len(locs))]
	s := t.ids[space]
	if s == 0 {
		return from
	}
	known = from
	at := t.spaces[s].root
	if from > 0 {
		slot := t.find(s, chain[from-1])
		if slot == 0 {
			return known
		}
		at = t.slots.owner(slot)
		n, ends := t.rest(at, slot, chain[known:])
		if n > 0 { // else the slot may be the last of all pages
			copy(locs[known:], t.slots.locs(slot+1, n))
			t.slots.copyMarks(marks, known, slot+1, n)
		}
		if known += n; !ends {
			return known
		}
	}
	for known < len(chain) {
		id, n := t.step(at, chain[known:])
		if n == 0 {
			break
		}
		r := t.runs.At(id)
		copy(locs[known:], t.slots.locs(r.start, n))
		t.slots.copyMarks(marks, known, r.start, n)
		known += n
		if n < int(r.len) {
			break
		}
		at = id
	}
	return known
}

// Get returns where a chunk is, and whether it is known at all.
func (t *Tree) Get(space, hash Hash) (Loc, bool) {
	slot := t.find(t.ids[space], hash)
	if slot == 0 {
		return 0, false
	}
	return *t.slots.loc(slot), true
}

// Parent returns the hash of the chunk before the given one: zero for the
// first of a prompt. It is false when the chunk or its parent is not known.
func (t *Tree) Parent(space, hash Hash) (Hash, bool) {
	slot := t.find(t.ids[space], hash)
	if slot == 0 {
		return Hash{}, false
	}
	return t.parentOf(slot)
}

// TreeStats is a snapshot of the tree.
type TreeStats struct {
	Chunks       int   // with at least one location
	Placeholders int   // with none
	Runs         int   // stretches without a branch
	Spaces       int   // with at least one chunk
	Bytes        int64 // memory of the tree, its own free room included
}

// TreeStats costs nothing: it is counted as the tree changes.
func (t *Tree) Stats() TreeStats {
	return TreeStats{
		Chunks:       t.chunks,
		Placeholders: t.holes,
		Runs:         t.runs.Used() - 2*len(t.ids),
		Spaces:       len(t.ids),
		Bytes: t.slots.bytes() + int64(t.runs.Len())*runBytes + t.table.Bytes() +
			int64(cap(t.spaces)*28+len(t.ids)*32+cap(t.prunable)*4+cap(t.scratch)*4),
	}
}

// step goes from the end of a run to the child that continues with chain,
// and returns it with how many of its leading chunks chain has; 0 is none.
func (t *Tree) step(at uint32, chain []Hash) (id uint32, n int) {
	id = t.runs.onlyChild(at) // common looks whether it is the right one
	if id == 0 {
		slot := t.find(t.runs.At(at).space, chain[0])
		if slot == 0 {
			return 0, 0
		}
		id = t.slots.owner(slot)
		if r := t.runs.At(id); r.parent != at || r.start != slot {
			return 0, 0
		}
	}
	return id, t.common(id, 0, chain)
}

// rest counts the leading chunks that chain has in common with what follows a
// slot in its run, and reports whether that is all that follows.
func (t *Tree) rest(id, slot uint32, chain []Hash) (n int, all bool) {
	r := t.runs.At(id)
	from := int(slot+1) - int(r.start)
	if from < int(r.len) && len(chain) > 0 {
		n = t.common(id, from, chain)
	}
	return n, from+n == int(r.len)
}

// common counts the leading chunks that a run, from its chunk number from on,
// and chain have in common; both have one at least.
func (t *Tree) common(id uint32, from int, chain []Hash) int {
	r := t.runs.At(id)
	n := min(int(r.len)-from, len(chain))
	own, chain := t.slots.hashes(r.start+uint32(from), n), chain[:n]
	for i := range own {
		if own[i] != chain[i] {
			return i
		}
	}
	return n
}

// find returns the slot of a chunk, or 0.
func (t *Tree) find(space uint32, hash Hash) uint32 {
	slot := t.table.Head(t.mix(space, hash))
	for slot != 0 {
		p, o := t.slots.at(slot)
		if p.hash[o] == hash && t.runs.At(p.run[o]).space == space {
			break
		}
		slot = p.next[o]
	}
	return slot
}

// parentOf returns the hash before slot, and false when it is detached.
func (t *Tree) parentOf(slot uint32) (Hash, bool) {
	r := t.runs.At(t.slots.owner(slot))
	if slot != r.start {
		return t.slots.hash(slot - 1), true
	}
	if p := t.runs.At(r.parent); p.len > 0 {
		return t.slots.hash(p.last()), true
	}
	return Hash{}, r.parent == t.spaces[r.space].root
}

// mix is the table's hash of a chunk: two rounds of multiply and fold over
// all its bits (the core of wyhash), seeded per tree, because an engine's
// hashes may be consecutive numbers.
func (t *Tree) mix(space uint32, hash Hash) uint64 {
	a := binary.LittleEndian.Uint64(hash[:8]) ^ t.seed[0]
	b := binary.LittleEndian.Uint64(hash[8:]) ^ t.seed[1] + uint64(space)*0x9e3779b97f4a7c15
	hi, lo := bits.Mul64(a, b)
	hi, lo = bits.Mul64(hi^lo^t.seed[2], 0x9e3779b97f4a7c15)
	return hi ^ lo
}

func (t *Tree) hashOf(slot uint32) uint64 {
	p, o := t.slots.at(slot)
	return t.mix(t.runs.At(p.run[o]).space, p.hash[o])
}

// intern returns the number of a space, giving it one if need be.
func (t *Tree) intern(id Hash) uint32 {
	if s := t.ids[id]; s != 0 {
		return s
	}
	s := uint32(len(t.spaces))
	if k := len(t.freeSpaces); k > 0 {
		s, t.freeSpaces = t.freeSpaces[k-1], t.freeSpaces[:k-1]
	} else {
		t.spaces = append(t.spaces, space{})
	}
	t.spaces[s] = space{id: id, root: t.runs.alloc(s), limbo: t.runs.alloc(s)}
	t.ids[id] = s
	return s
}

// forget gives up a space that has no chunks left.
func (t *Tree) forget(s uint32) {
	sp := t.spaces[s]
	if t.runs.At(sp.root).child != 0 || t.runs.At(sp.limbo).child != 0 {
		return
	}
	t.runs.Give(sp.root)
	t.runs.Give(sp.limbo)
	delete(t.ids, sp.id)
	t.spaces[s] = space{}
	t.freeSpaces = append(t.freeSpaces, s)
}
