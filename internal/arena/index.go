package arena

import (
	"math"
	"math/bits"
)

const (
	// A bucket of 64 units bounds the walk of a lookup at 64 records of the
	// smallest extents; large spaces take up to 256, for an index of 4 bytes
	// per MiB.
	minBucketShift = 6
	maxBucketShift = 8
	// maxFineBuckets is where coarser buckets set in: 16 MiB of index.
	maxFineBuckets = 1 << 22
)

// index finds the record at or before an address.
type index struct {
	first []uint32 // by bucket: the first record that starts in it, or none
	set   bitset   // buckets with a record
	shift uint8    // log2 of the units in a bucket
}

func (x *index) init(units int64) {
	x.shift = minBucketShift
	for x.shift < maxBucketShift && units>>x.shift > maxFineBuckets {
		x.shift++
	}
	n := int(units>>x.shift) + 1
	x.first = make([]uint32, n)
	x.set = newBitset(n)
}

// insert makes record i, linked in address order, findable.
func (x *index) insert(t *records, i uint32) {
	start := t.at(i).start
	b := int(start >> x.shift)
	switch first := x.first[b]; {
	case first == none:
		x.set.add(b)
		x.first[b] = i
	case start < t.at(first).start:
		x.first[b] = i
	}
}

// remove forgets record i, still linked in address order.
func (x *index) remove(t *records, i uint32) {
	r := t.at(i)
	b := int(r.start >> x.shift)
	if x.first[b] != i {
		return
	}
	if next := r.next; next != end && int(t.at(next).start>>x.shift) == b {
		x.first[b] = next
		return
	}
	x.first[b] = none
	x.set.remove(b)
}

// lookup returns the record that starts at unit, or none.
func (x *index) lookup(t *records, unit int64) uint32 {
	i := x.first[unit>>x.shift]
	for i != none && t.at(i).start < unit {
		i = t.at(i).next // the end of the space is none
	}
	if i != none && t.at(i).start != unit {
		return none
	}
	return i
}

// covering returns the record whose extent contains unit, which lies within
// the space.
func (x *index) covering(t *records, unit int64) uint32 {
	b := int(unit >> x.shift)
	i := x.first[b]
	if i == none || t.at(i).start > unit {
		// Something starts at 0, so there is an earlier bucket.
		i = x.first[x.set.before(b)]
	}
	for {
		next := t.at(i).next
		if next == end || t.at(next).start > unit {
			return i
		}
		i = next
	}
}

// bitset is a set of small numbers that finds a member's predecessor in a step
// per factor of 64: a bit in level k+1 tells that a word of level k is not 0.
type bitset [][]uint64

func newBitset(n int) bitset {
	var s bitset
	for {
		n = (n + 63) / 64
		s = append(s, make([]uint64, n))
		if n <= 1 {
			return s
		}
	}
}

func (s bitset) add(i int) {
	for _, words := range s {
		w := &words[i/64]
		had := *w
		*w |= 1 << (i % 64)
		if had != 0 {
			return
		}
		i /= 64
	}
}

func (s bitset) remove(i int) {
	for _, words := range s {
		w := &words[i/64]
		*w &^= 1 << (i % 64)
		if *w != 0 {
			return
		}
		i /= 64
	}
}

// before returns the largest member below i, or -1.
func (s bitset) before(i int) int {
	for level := range s {
		if m := s[level][i/64] & (1<<(i%64) - 1); m != 0 {
			i = i/64*64 + bits.Len64(m) - 1
			for level > 0 {
				level--
				i = i*64 + bits.Len64(s[level][i]) - 1
			}
			return i
		}
		i /= 64
	}
	return -1
}

// A record is addressed by its number. Record 0 is the end of the space: a
// zero-sized live extent that closes the ring of records in address order, and
// doubles as the end of the free lists, which never hold it.
const (
	end  uint32 = 0
	none uint32 = 0
	// live in place of a free list's link marks an extent handed out.
	live uint32 = math.MaxUint32
)

// record describes one extent, live or free. It holds no pointer, so the
// garbage collector does not look into it.
type record struct {
	start, units       int64
	prev, next         uint32 // neighbours in address order
	prevFree, nextFree uint32 // neighbours in the free list; prevFree == live: handed out, and nextFree is the tag
}

func (r *record) isFree() bool { return r.prevFree != live }

// pageRecords keeps a page at 8 KiB: small beside the allocator of a segment
// file, and adding one never stalls.
const pageRecords = 256

// records is a growing table of records. Pages never move, so a *record stays
// good while others are taken.
type records struct {
	pages []*[pageRecords]record
	used  uint32 // records ever taken
	spare uint32 // list of records given back, through next
}

func (t *records) init(units int64) {
	i := t.take(units, 0)
	r := t.at(i)
	r.prev, r.next, r.prevFree = i, i, live
}

func (t *records) at(i uint32) *record {
	return &t.pages[i/pageRecords][i%pageRecords]
}

// take returns a record that is in no list and linked to nothing.
func (t *records) take(start, units int64) uint32 {
	i := t.spare
	if i != none {
		t.spare = t.at(i).next
	} else {
		i = t.used
		if int(i/pageRecords) == len(t.pages) {
			t.pages = append(t.pages, new([pageRecords]record))
		}
		t.used++
	}
	*t.at(i) = record{start: start, units: units}
	return i
}

// link puts record i before next in address order.
func (t *records) link(i, next uint32) {
	prev := t.at(next).prev
	r := t.at(i)
	r.prev, r.next = prev, next
	t.at(prev).next = i
	t.at(next).prev = i
}

// unlink takes record i out of the address order and gives it back.
func (t *records) unlink(i uint32) {
	r := t.at(i)
	t.at(r.prev).next = r.next
	t.at(r.next).prev = r.prev
	*r = record{next: t.spare}
	t.spare = i
}

// Extent is one extent of the space, handed out or free.
type Extent struct {
	Off, Bytes int64 // Bytes as rounded up to whole units
	Tag        uint32
	Free       bool
}

// Walk calls do with the piece that covers off and those after it (before it,
// if back) in address order, until do returns false or the space ends. An off
// outside the space has none. do may not call the allocator.
func (a *Allocator) Walk(off int64, back bool, do func(Extent) bool) {
	unit := off >> unitShift
	if off < 0 || unit >= a.units {
		return
	}
	i := a.index.covering(&a.records, unit)
	for i != end && do(a.piece(i)) {
		if back {
			i = a.records.at(i).prev
		} else {
			i = a.records.at(i).next
		}
	}
}

// Largest fills out with free extents, those of the largest size classes first
// and of one class those freed last, and returns how many they are.
func (a *Allocator) Largest(out []Extent) int {
	n := 0
	for rows := a.bins.rows; rows != 0; {
		row := bits.Len64(rows) - 1
		rows &^= 1 << row
		for slots := a.bins.slots[row]; slots != 0; {
			slot := bits.Len32(slots) - 1
			slots &^= 1 << slot
			for i := a.bins.heads[row][slot]; i != none; i = a.records.at(i).nextFree {
				if n == len(out) {
					return n
				}
				out[n] = a.piece(i)
				n++
			}
		}
	}
	return n
}

func (a *Allocator) piece(i uint32) Extent {
	r := a.records.at(i)
	p := Extent{Off: r.start << unitShift, Bytes: r.units << unitShift, Free: r.isFree()}
	if !p.Free {
		p.Tag = r.nextFree
	}
	return p
}
