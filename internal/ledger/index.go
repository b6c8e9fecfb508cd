package ledger

import (
	"math/bits"

	"github.com/kvstored/kvstored/internal/base"
)

// index is a hash table over records that are chained through a field of
// their own. It grows by linear hashing (Litwin, VLDB 1980): when there are
// more records than buckets, one bucket is split in two. So no insert ever
// rehashes more than one chain, and the load stays at or below one.
//
// It keeps numbers only; hash and next lead to the records. Record 0 ends a
// chain.
type index struct {
	heads pages[uint32]
	n     uint32 // records
	mask  uint64 // smallest 2^k-1 that covers every bucket number
	hash  func(rec uint32) uint64
	next  func(rec uint32) *uint32
}

func newIndex(hash func(uint32) uint64, next func(uint32) *uint32) index {
	x := index{hash: hash, next: next}
	x.heads.grow()
	return x
}

// head returns where the chain of hash h starts.
func (x *index) head(h uint64) *uint32 { return x.heads.at(x.bucket(h)) }

func (x *index) bucket(h uint64) uint32 {
	b := uint32(h & x.mask)
	if b >= x.heads.n { // not split off yet
		b = uint32(h & (x.mask >> 1))
	}
	return b
}

// insert adds a record that is in no chain. next is its link.
func (x *index) insert(h uint64, rec uint32, next *uint32) {
	head := x.head(h)
	*next, *head = *head, rec
	x.n++
	if x.n > x.heads.n {
		x.split()
	}
}

// remove takes out a record that is in the chain of h. next is its link.
func (x *index) remove(h uint64, rec uint32, next *uint32) {
	at := x.head(h)
	for *at != rec {
		if *at == 0 {
			base.Broken("ledger: record %d is not in the index", rec)
			return
		}
		at = x.next(*at)
	}
	*at, *next = *next, 0
	x.n--
}

// split adds one bucket and moves its share of the bucket it splits.
func (x *index) split() {
	fresh := x.heads.grow()
	x.mask = 1<<bits.Len32(fresh) - 1
	at, to := x.heads.at(uint32(uint64(fresh)&(x.mask>>1))), x.heads.at(fresh)
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
