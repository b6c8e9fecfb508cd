package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// table is the entries of a ledger and what leads to them: by key, and from kid
// to parent. It has what protects each of them, and the sums over all.
type table struct {
	sizeOf func(uint32) int64 // see Options.SizeOf
	seed   maphash.Seed

	entries base.Pool[entry]
	most    int // of entries in any life; see Options.Entries
	guards  guards
	index   base.Index
	spaces  spaces

	count    Stats
	released bool // something was let go in this lock round
}

func (t *table) init(sizeOf func(uint32) int64, most int) {
	t.sizeOf = sizeOf
	t.most = cmp.Or(most, math.MaxInt)
	if sizeOf == nil {
		t.sizeOf = func(n uint32) int64 { return arena.RoundUp(max(int64(n), 1)) }
	}
	t.seed = maphash.MakeSeed()
	t.entries.Init()
	t.guards.Init()
	t.index = base.NewIndex(1,
		func(id uint32) uint64 { e := t.entries.At(id); return t.hash(e.space, e.hash) },
		func(id uint32) *uint32 { return &t.entries.At(id).next },
	)
	t.spaces = spaces{number: make(map[key.SpaceID]uint32), quotas: make(map[key.SpaceID]uint32)}
	t.spaces.slots.Init()
}

// ErrFull refuses an entry beyond Options.Entries. An Evict, with its Free, makes room
// for one.
var ErrFull = errors.New("as many entries as there may be")

// FreeEntries is how many more entries l may have; math.MaxInt where nothing bounds them.
// A chunk takes two where its parent is absent.
func FreeEntries(l *Ledger) int {
	b := l.mu.lock()
	defer l.mu.unlock()
	if b.most == math.MaxInt {
		return math.MaxInt
	}
	return b.most - b.entries.Used()
}

// hasRoom is an error if the entry id, 0 for a new one, would be one too many, with the
// hole that it would hang below: up is the entry of its parent, or 0.
func (t *table) hasRoom(id, up uint32, parent key.Hash) error {
	n := t.entries.Used()
	if id == 0 {
		n++
	}
	if up == 0 && parent != (key.Hash{}) {
		n++
	}
	if n > t.most {
		return fmt.Errorf("ledger: %d entries, of at most %d: %w", t.entries.Used(), t.most, ErrFull)
	}
	return nil
}

// find returns the number of k's entry in any life, or 0.
func (t *table) find(k key.Key) uint32 {
	sp := t.spaces.find(k.Space)
	if sp == noSpace {
		return 0
	}
	return t.findIn(sp, k.Hash)
}

func (t *table) findIn(sp uint32, h key.Hash) uint32 {
	id := t.index.Head(t.hash(sp, h))
	for id != 0 {
		e := t.entries.At(id)
		if e.hash == h && e.space == sp {
			return id
		}
		id = e.next
	}
	return 0
}

// hash mixes all of a key with the ledger's seed: engines may hand over
// hashes that are plain counters, or chosen to collide.
func (t *table) hash(sp uint32, h key.Hash) uint64 {
	return mixed(t.seed, h, t.spaces.slots.At(sp).mix)
}

func mixed(seed maphash.Seed, h key.Hash, mix uint64) uint64 {
	hi, lo := bits.Mul64(maphash.Bytes(seed, h[:])^mix, 0x9e3779b97f4a7c15) // 2^64 / golden ratio
	return hi ^ lo
}

// hashIn is what the policies know a chunk by, whether or not its space has
// anything here.
func (t *table) hashIn(space key.SpaceID, h key.Hash) uint64 {
	sp := t.spaces.find(space)
	if sp != noSpace {
		return t.hash(sp, h)
	}
	return mixed(t.seed, h, maphash.Bytes(t.seed, space[:]))
}

// add makes a hole for k and indexes it.
func (t *table) add(sp key.SpaceID, h key.Hash) uint32 {
	id := t.entries.Take()
	n := t.spaces.ref(sp, t.seed)
	e := t.entries.At(id)
	*e = entry{hash: h, space: n, life: hole}
	t.count.Holes++
	t.index.Insert(t.hash(n, h), id, &e.next)
	return id
}

// unindex makes the entry unfindable.
func (t *table) unindex(id uint32) {
	e := t.entries.At(id)
	t.index.Remove(t.hash(e.space, e.hash), id, &e.next)
}

// recycle frees the number of an entry that nothing refers to any more.
func (t *table) recycle(id uint32) {
	t.spaces.unref(t.entries.At(id).space)
	t.entries.Give(id)
}

// dropHole drops a hole that has lost its last kid.
func (t *table) dropHole(id uint32) {
	t.unindex(id)
	t.recycle(id)
	t.count.Holes--
}

func (t *table) bytes(e *entry) int64 { return t.sizeOf(e.size) }

// snapshot returns what callers may know of an entry.
func (t *table) snapshot(id uint32) (x Entry) {
	t.export(id, &x)
	return x
}

// export is snapshot without a copy of the 96 bytes.
func (t *table) export(id uint32, x *Entry) {
	e := t.entries.At(id)
	x.ID = policy.ID(id)
	x.Key.Space, x.Key.Hash = t.spaces.slots.At(e.space).id, e.hash
	x.Parent = key.Hash{}
	if e.parent != 0 {
		x.Parent = t.entries.At(e.parent).hash
	}
	x.Size, x.Value = e.size, e.value.unpack()
	x.Dirty, x.Hits, x.Below = e.mark&dirty != 0, uint8(e.mark/hit), Below(e.mark&anyBelow/below)
	x.Cold = e.mark&cooled != 0
}

// makeHole turns an entry whose bytes are gone into a hole.
func (t *table) makeHole(id uint32) {
	e := t.entries.At(id)
	*e = entry{hash: e.hash, space: e.space, next: e.next, kids: e.kids, guard: e.guard, life: hole}
	t.count.Holes++
}

// countResident counts n more resident entries, or less, in the space of e.
func (t *table) countResident(e *entry, n int) {
	t.count.Entries += n
	t.spaces.slots.At(e.space).here += uint32(n)
	if e.mark&dirty != 0 {
		t.countDirty(e, n)
	}
}

func (t *table) countDirty(e *entry, n int) {
	t.count.DirtyEntries += n
	t.count.DirtyBytes += int64(n) * int64(e.size)
}
