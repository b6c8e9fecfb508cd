package ledger

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// entry is all a ledger knows of one chunk, but for what protects it: 60
// bytes, no pointers.
type entry struct {
	hash  key.Hash
	value packed

	space  uint32 // number in spaces
	next   uint32 // chain of the index, or the free list
	parent uint32 // entry of the chunk before it; 0 for none or unknown
	kids   uint32 // filling or resident entries whose parent this is
	size   uint32 // payload bytes
	guard  uint32 // number in guards; 0 for an entry that nothing protects

	life   life
	spared uint8 // how often, since it was used
	mark   mark
}

// packed is a Value in bytes: words would have every entry aligned to eight.
type packed [16]byte

func pack(v Value) (p packed) {
	binary.NativeEndian.PutUint64(p[:], v.A)
	binary.NativeEndian.PutUint64(p[8:], v.B)
	return p
}

func (p *packed) unpack() Value {
	return Value{binary.NativeEndian.Uint64(p[:]), binary.NativeEndian.Uint64(p[8:])}
}

// life is what an entry is at present.
type life uint8

const (
	unused   life = iota
	hole          // no bytes: stands for the missing parent of its kids
	filling       // being written by its filler
	resident      // published
	gone          // evicted or removed; its bytes still count until Free and the last Unhold
)

type mark uint16

const (
	dirty      mark = 1 << iota // differs from the tiers below
	publishing                  // in the Publish under way, not yet in the policy
	freed                       // gone, and Free was called
	quoted                      // in the rank of its space's quota
	cooled                      // see cold
	used                        // touched since it was queued; see under.go

	fresh = publishing // resident: published to be used at once, and not yet used

	below  mark = 1 << 6  // the first of maxBelow tiers that may have it
	passed mark = 1 << 10 // see Pass
	hit    mark = 1 << 12 // the upper four bits count touches
)

// MaxHits is where the count of touches ends.
const MaxHits = 15

// touch is a use of a resident entry. The first one of what came up to be used
// was counted when it was added.
func (b *book) touch(id policy.ID) {
	e := b.entries.at(uint32(id))
	e.spared = 0
	e.mark = e.mark&^(cooled|passed) | used
	if e.mark&fresh != 0 {
		e.mark &^= fresh
		b.rankRenew(uint32(id))
		return
	}
	if e.mark/hit < MaxHits {
		e.mark += hit
	}
	b.rankTouch(uint32(id))
}

// find returns the number of k's entry in whatever life, or 0.
func (b *book) find(k key.Key) uint32 {
	sp := b.spaces.find(k.Space)
	if sp == noSpace {
		return 0
	}
	return b.findIn(sp, k.Hash)
}

func (b *book) findIn(sp uint32, h key.Hash) uint32 {
	id := *b.index.head(b.hash(sp, h))
	for id != 0 {
		e := b.entries.at(id)
		if e.hash == h && e.space == sp {
			return id
		}
		id = e.next
	}
	return 0
}

// hash mixes all of a key with the ledger's seed: engines may hand over
// hashes that are plain counters, or chosen to collide.
func (b *book) hash(sp uint32, h key.Hash) uint64 {
	return mixed(b.seed, h, b.spaces.slots.at(sp).mix)
}

func mixed(seed maphash.Seed, h key.Hash, mix uint64) uint64 {
	hi, lo := bits.Mul64(maphash.Bytes(seed, h[:])^mix, 0x9e3779b97f4a7c15) // 2^64 / golden ratio
	return hi ^ lo
}

// add makes a hole for k and indexes it.
func (b *book) add(sp key.SpaceID, h key.Hash) uint32 {
	id := b.freeEntry
	if id != 0 {
		b.freeEntry = b.entries.at(id).next
	} else {
		id = b.entries.grow()
	}
	n := b.spaces.ref(sp, b.seed)
	e := b.entries.at(id)
	*e = entry{hash: h, space: n, life: hole}
	b.count.Holes++
	b.index.insert(b.hash(n, h), id, &e.next)
	return id
}

// unindex makes the entry unfindable.
func (b *book) unindex(id uint32) {
	e := b.entries.at(id)
	b.index.remove(b.hash(e.space, e.hash), id, &e.next)
}

// recycle frees the number of an entry that nothing refers to any more.
func (b *book) recycle(id uint32) {
	e := b.entries.at(id)
	b.spaces.unref(e.space)
	*e = entry{next: b.freeEntry}
	b.freeEntry = id
}

// vanish drops a hole that has lost its last kid.
func (b *book) vanish(id uint32) {
	b.unindex(id)
	b.recycle(id)
	b.count.Holes--
}

func (b *book) bytes(e *entry) int64 { return b.sizeOf(e.size) }

func (b *book) key(e *entry) key.Key {
	return key.Key{Space: b.spaces.slots.at(e.space).id, Hash: e.hash}
}

// snapshot returns what callers may know of an entry.
func (b *book) snapshot(id uint32) (x Entry) {
	b.export(id, &x)
	return x
}

// export is snapshot without a copy of the 96 bytes.
func (b *book) export(id uint32, x *Entry) {
	e := b.entries.at(id)
	x.ID = policy.ID(id)
	x.Key.Space, x.Key.Hash = b.spaces.slots.at(e.space).id, e.hash
	x.Parent = key.Hash{}
	if e.parent != 0 {
		x.Parent = b.entries.at(e.parent).hash
	}
	x.Size, x.Value = e.size, e.value.unpack()
	x.Dirty, x.Hits, x.Below = e.mark&dirty != 0, uint8(e.mark/hit), Below(e.mark&anyBelow/below)
}
