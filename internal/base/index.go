package base

import "math/bits"

// Index is a hash table over records that are chained through a field of
// their own. It grows by linear hashing (Litwin, VLDB 1980): when there are
// more records than it has buckets for, one bucket is split in two. So no insert
// ever rehashes more than one or two chains.
//
// It keeps numbers only; hash and next lead to the records. Record 0 ends a
// chain. The zero Index is empty, and nothing can be inserted.
type Index struct {
	heads Pages[uint32]
	n     uint32 // records
	each  uint32 // buckets for a record
	mask  uint64 // smallest 2^k-1 that covers every bucket number
	hash  func(rec uint32) uint64
	next  func(rec uint32) *uint32
}

// NewIndex returns an empty index with so many buckets for each record.
func NewIndex(each uint32, hash func(uint32) uint64, next func(uint32) *uint32) Index {
	x := Index{each: each, hash: hash, next: next}
	x.heads.Grow()
	return x
}

// Len is how many records there are.
func (x *Index) Len() uint32 { return x.n }

// Head returns the first record in the chain of hash h.
func (x *Index) Head(h uint64) uint32 {
	if x.n == 0 {
		return 0
	}
	return *x.heads.At(x.bucket(h))
}

func (x *Index) bucket(h uint64) uint32 {
	b := uint32(h & x.mask)
	if b >= x.heads.Len() { // not split off yet
		b = uint32(h & (x.mask >> 1))
	}
	return b
}

// Insert adds a record that is in no chain. next is its link.
func (x *Index) Insert(h uint64, rec uint32, next *uint32) {
	head := x.heads.At(x.bucket(h))
	*next, *head = *head, rec
	for x.n++; x.n*x.each > x.heads.Len(); {
		x.split()
	}
}

// Link returns what leads to a record in the chain of h; nil, which is a broken invariant,
// where it is not there.
func (x *Index) Link(h uint64, rec uint32) *uint32 {
	at := x.heads.At(x.bucket(h))
	for *at != rec {
		if *at == 0 {
			Broken("index: record %d is not in its chain", rec)
			return nil
		}
		at = x.next(*at)
	}
	return at
}

// Remove takes out a record that is in the chain of h. next is its link.
func (x *Index) Remove(h uint64, rec uint32, next *uint32) {
	if at := x.Link(h, rec); at != nil {
		*at, *next = *next, 0
		x.n--
	}
}

// Move gives a record in the chain of h, with its link, another number.
func (x *Index) Move(h uint64, from, to uint32) {
	if at := x.Link(h, from); at != nil {
		*x.next(to), *at = *x.next(from), to
	}
}

// Sweep calls do for the records of one chain, at a place that is 0 at first, and returns the
// place to go on with, 0 after the last. A record that is there all the time is told of once:
// places are hashes, the last bit first, so that no change moves a record to another place.
func (x *Index) Sweep(at uint64, do func(rec uint32)) (next uint64) {
	b := x.bucket(bits.Reverse64(at))
	for rec := *x.heads.At(b); rec != 0; rec = *x.next(rec) {
		do(rec)
	}
	width := bits.Len64(x.mask) // of the bits that the hashes here have in common
	if width > 0 && b|1<<(width-1) >= x.heads.Len() {
		width-- // not split yet
	}
	return (at>>(64-width) + 1) << (64 - width)
}

// Bytes is the memory of the buckets.
func (x *Index) Bytes() int64 { return 4 * int64(x.heads.Len()) }

// split adds one bucket and moves its share of the bucket it splits.
func (x *Index) split() {
	fresh := x.heads.Grow()
	x.mask = 1<<bits.Len32(fresh) - 1
	at, to := x.heads.At(uint32(uint64(fresh)&(x.mask>>1))), x.heads.At(fresh)
	for *at != 0 {
		rec := *at
		if x.bucket(x.hash(rec)) != fresh {
			at = x.next(rec)
			continue
		}
		*at = *x.next(rec)
		*x.next(rec), *to = 0, rec
		to = x.next(rec)
	}
}
