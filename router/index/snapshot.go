package index

import (
	"encoding/binary"
	"slices"

	"github.com/zeebo/xxh3"
)

// A snapshot is, all numbers as unsigned varints unless said:
//
//	magic, 8 bytes
//	ticks since the index was made
//	workers: their count; of each its id, rank, scheme and time to live
//	shards: their count; of each
//	    model, tenant, salt, LoRA; tokens of a block; groups; hash and its seed
//	    count of blocks; blocks, each behind its parent (tree.walk)
//	    count of claims; of each the key, the element, when it was said
//	xxh3_64 of all that, 8 bytes
//
// A text is its length and its bytes; groups are their count, and of each its kind and
// tokens. A block is
//
//	up (tree.walk)
//	what * 2, and 1 if there are aliases
//	  what 0: its own set is its parent's
//	  what 1: its own set follows: count, elements
//	  what 2 + i: its own set is the i-th of two and more elements that followed
//	age of its stamp in 128 ticks
//	key, 8 bytes
//	aliases, if there are: count; of each the number of a worker that has the
//	scheme, and the hash, 8 bytes
//
// An element has the number of a worker in the list above in place of a slot.
const snapshotMagic = "kvindex\x02"

const (
	ageShift = 7 // of a stamp's age

	sameSet  = 0 // of what
	newSet   = 1
	knownSet = 2
)

// Snapshot returns all that the index knows, for [Restore]. Each shard is as it
// was at one moment; changes of a shard wait while it is read, and workers can
// neither come nor go meanwhile.
func (x *Index) Snapshot() []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := &encoder{now: x.tick(), numbers: make(map[uint32]uint32), schemes: make(map[uint16]uint32)}
	e.out = append(e.out, snapshotMagic...)
	e.number(uint64(e.now))
	e.workers(x.workers.Load())
	names := x.Names()
	e.number(uint64(len(names)))
	shards := *x.shards.Load()
	for _, n := range names {
		e.shard(shards[n])
	}
	return binary.LittleEndian.AppendUint64(e.out, xxh3.Hash(e.out))
}

// encoder writes a snapshot.
type encoder struct {
	out     []byte
	now     uint32
	numbers map[uint32]uint32 // of workers, by slot
	schemes map[uint16]uint32 // a worker that has each
	room    []element
}

func (e *encoder) number(n uint64) { e.out = binary.AppendUvarint(e.out, n) }
func (e *encoder) eight(n uint64)  { e.out = binary.LittleEndian.AppendUint64(e.out, n) }

func (e *encoder) text(s string) {
	e.number(uint64(len(s)))
	e.out = append(e.out, s...)
}

func (e *encoder) workers(r *registry) {
	e.number(uint64(len(r.slots)))
	for slot, m := range r.members {
		if !m.live {
			continue
		}
		n := uint32(len(e.numbers))
		e.numbers[uint32(slot)] = n
		if _, known := e.schemes[m.scheme]; !known {
			e.schemes[m.scheme] = n
		}
		e.text(m.ID)
		e.number(uint64(m.Rank))
		e.text(m.named)
		e.number(uint64(m.ttl))
	}
}

func (e *encoder) shard(s *Shard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, part := range []string{s.name.Model, s.name.Tenant, s.name.Salt, s.name.LoRA} {
		e.text(part)
	}
	e.number(uint64(s.config.BlockTokens))
	e.number(uint64(len(s.config.Groups)))
	for _, g := range s.config.Groups {
		e.number(uint64(g.Kind))
		e.number(uint64(g.Tokens))
	}
	e.number(uint64(s.config.Hash.kind))
	e.eight(s.config.Hash.seed)
	e.blocks(s.tree.Load())
	e.number(uint64(len(s.mu.claims)))
	for c, said := range s.mu.claims {
		e.eight(c.key)
		e.element(c.element)
		e.number(uint64(said))
	}
}

func (e *encoder) blocks(t *tree) {
	e.number(uint64(t.blocks.count))
	e.out = slices.Grow(e.out, 12*t.blocks.count)
	known := make(map[setID]uint64)
	t.walk(func(n uint32, up int) {
		b := t.blocks.at(n)
		what := uint64(sameSet)
		if b.own != t.blocks.at(b.parent()).own {
			what = newSet
			if i, is := known[b.own]; is {
				what = knownSet + i
			}
		}
		named := 0
		t.alias.each(n, func(alias) { named++ })
		e.number(uint64(up))
		e.number(what<<1 | uint64(min(named, 1)))
		if what == newSet {
			e.room = t.sets.all(e.room[:0], b.own)
			e.number(uint64(len(e.room)))
			for _, el := range e.room {
				e.element(el)
			}
			if b.own.stored() {
				known[b.own] = uint64(len(known))
			}
		}
		e.number(uint64(e.now-min(b.stamp.Load(), e.now)) >> ageShift)
		e.eight(b.key.Load())
		if named > 0 {
			e.number(uint64(named))
			t.alias.each(n, func(a alias) {
				e.number(uint64(e.schemes[a.scheme]))
				e.eight(a.hash)
			})
		}
	})
}

func (e *encoder) element(el element) {
	c := el.column()
	e.number(uint64(columnOf(e.numbers[c.slot()], c.group()).with(el.mask())))
}
