package index

import (
	"math/bits"
	"sync/atomic"
)

// table leads from a key to the number of a block. One goroutine writes; any
// number read without a lock.
//
// A directory leads by the first bits of the mixed key to a segment (Fagin et
// al., "Extendible Hashing", ACM TODS 4(3), 1979), and the rest to a bucket of
// one cache line: 15 slots and the number of entries that passed it by because
// it was full. A slot has six further bits of the key. An entry never moves
// inside its segment, and growing makes a new segment, so a reader misses no
// entry that is there before it comes and after it goes. Removing clears the
// slot: there are no tombstones, and nothing is made anew in a steady state.
type table struct {
	dir   atomic.Pointer[directory]
	seed  [2]uint64
	key   func(n uint32) uint64 // the key of an entry
	count int
	slots int64 // of all segments
}

type directory struct {
	bits uint
	segs []atomic.Pointer[segment]
}

type segment struct {
	bits    uint // of the key that all entries share
	count   int
	buckets []bucket
}

// bucket is 64 bytes.
type bucket struct {
	slots  [bucketSlots]atomic.Uint32 // 0 = free
	passed atomic.Uint32
}

const (
	bucketSlots = 15
	numberBits  = 26
	numberMask  = 1<<numberBits - 1

	// A new segment is 62 % full; it grows when it is 88 % full, or splits if
	// it has so many entries. Few segments mean that the way to a bucket is in
	// the processor's cache.
	newFill, fullFill = 62, 88
	splitAt           = 16384
)

func newTable(seed [2]uint64, key func(uint32) uint64) *table {
	t := &table{seed: seed, key: key}
	d := &directory{segs: make([]atomic.Pointer[segment], 1)}
	d.segs[0].Store(t.newSegment(0, 20))
	t.dir.Store(d)
	return t
}

// mix spreads all bits of a key; keys may be plain numbers, or chosen to meet
// each other, which the seed prevents.
func (t *table) mix(key uint64) uint64 {
	high, low := bits.Mul64(key^t.seed[0], t.seed[1])
	return high ^ low
}

func (t *table) newSegment(depth uint, entries int) *segment {
	n := entries*100/(newFill*bucketSlots) + 1
	t.slots += int64(n * bucketSlots)
	return &segment{bits: depth, buckets: make([]bucket, n)}
}

func (d *directory) segment(h uint64) *segment { return d.segs[h>>(64-d.bits)].Load() }

func (s *segment) home(h uint64) int { return int(uint64(uint32(h)) * uint64(len(s.buckets)) >> 32) }

func (s *segment) after(b int) int {
	if b++; b < len(s.buckets) {
		return b
	}
	return 0
}

// tag is what a slot has of a mixed key, where the slot has it.
func tag(h uint64) uint32 { return uint32(h>>32) << numberBits }

// cursor walks through the entries that may have a key.
type cursor struct {
	seg    *segment
	bucket int
	slot   int
	tag    uint32
	left   int // buckets
}

func (t *table) start(key uint64) cursor {
	h := t.mix(key)
	seg := t.dir.Load().segment(h)
	return cursor{seg: seg, bucket: seg.home(h), tag: tag(h), left: len(seg.buckets)}
}

// next returns the number of the next entry that may have the key, 0 at the end.
func (c *cursor) next() uint32 {
	for {
		b := &c.seg.buckets[c.bucket]
		for i := c.slot; i < bucketSlots; i++ {
			if v := b.slots[i].Load(); (v^c.tag)>>numberBits == 0 && v != 0 {
				c.slot = i + 1
				return v & numberMask
			}
		}
		if c.left--; b.passed.Load() == 0 || c.left == 0 {
			return 0
		}
		c.bucket, c.slot = c.seg.after(c.bucket), 0
	}
}

// get returns the entry with a key, 0 if there is none. It is the writer's.
func (t *table) get(key uint64) uint32 {
	for c := t.start(key); ; {
		if n := c.next(); n == 0 || t.key(n) == key {
			return n
		}
	}
}

// home loads the bucket where a key begins. Several in a row come from memory
// at once, where searches would wait for each in turn.
func (t *table) home(key uint64) (*bucket, uint32) {
	h := t.mix(key)
	seg := t.dir.Load().segment(h)
	b := &seg.buckets[seg.home(h)]
	b.passed.Load()
	return b, tag(h)
}

// first returns the first entry of a bucket that may have a key with this tag.
func (b *bucket) first(tag uint32) uint32 {
	for i := range b.slots {
		if v := b.slots[i].Load(); (v^tag)>>numberBits == 0 && v != 0 {
			return v & numberMask
		}
	}
	return 0
}

// add puts in an entry whose key is not there.
func (t *table) add(key uint64, n uint32) {
	h := t.mix(key)
	seg := t.dir.Load().segment(h)
	if 100*(seg.count+1) > fullFill*bucketSlots*len(seg.buckets) {
		t.grow(h, seg)
		seg = t.dir.Load().segment(h)
	}
	seg.put(h, n)
	t.count++
}

func (s *segment) put(h uint64, n uint32) {
	s.count++
	for i := s.home(h); ; i = s.after(i) {
		b := &s.buckets[i]
		for j := range b.slots {
			if b.slots[j].Load() == 0 {
				b.slots[j].Store(tag(h) | n)
				return
			}
		}
		b.passed.Add(1)
	}
}

// remove takes an entry out that is there.
func (t *table) remove(key uint64, n uint32) {
	h := t.mix(key)
	seg := t.dir.Load().segment(h)
	want := tag(h) | n
	home := seg.home(h)
	for i := home; ; i = seg.after(i) {
		b := &seg.buckets[i]
		for j := range b.slots {
			if b.slots[j].Load() == want {
				b.slots[j].Store(0)
				for ; home != i; home = seg.after(home) {
					seg.buckets[home].passed.Add(^uint32(0))
				}
				seg.count--
				t.count--
				return
			}
		}
	}
}

// grow makes a segment larger, or two of it.
func (t *table) grow(h uint64, old *segment) {
	t.slots -= int64(len(old.buckets) * bucketSlots)
	d := t.dir.Load()
	if old.count < splitAt {
		t.publish(d, h, old, t.refill(old, t.newSegment(old.bits, old.count+1)))
		return
	}
	if old.bits == d.bits {
		d = t.double(d)
	}
	depth := old.bits + 1
	low, high := t.newSegment(depth, old.count/2+1), t.newSegment(depth, old.count/2+1)
	t.refill(old, low, high)
	t.publish(d, h, old, low, high)
}

// refill copies all entries of a segment to one segment or two.
func (t *table) refill(old *segment, to ...*segment) *segment {
	var numbers [bucketSlots]uint32
	var keys [bucketSlots]uint64
	for i := range old.buckets {
		n := 0
		for j := range old.buckets[i].slots {
			if v := old.buckets[i].slots[j].Load(); v != 0 {
				numbers[n], keys[n] = v&numberMask, t.key(v&numberMask) // their waits for memory overlap
				n++
			}
		}
		for j, number := range numbers[:n] {
			h := t.mix(keys[j])
			to[h>>(63-old.bits)&uint64(len(to)-1)].put(h, number)
		}
	}
	return to[0]
}

// publish puts the segments that follow old in its places.
func (t *table) publish(d *directory, h uint64, old *segment, to ...*segment) {
	width := 1 << (d.bits - old.bits) // of old in the directory
	first := int(h>>(64-d.bits)) &^ (width - 1)
	for i := range width {
		d.segs[first+i].Store(to[i*len(to)/width])
	}
}

func (t *table) double(d *directory) *directory {
	twice := &directory{bits: d.bits + 1, segs: make([]atomic.Pointer[segment], 2*len(d.segs))}
	for i := range twice.segs {
		twice.segs[i].Store(d.segs[i/2].Load())
	}
	t.dir.Store(twice)
	return twice
}

func (t *table) bytes() int64 { return t.slots * 64 / bucketSlots }
