package extent

import "math/bits"

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
