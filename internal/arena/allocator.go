package arena

import (
	"math/bits"

	"github.com/kvstored/kvstored/internal/base"
)

// UnitBytes is the granularity of every offset and size: the block size that
// direct I/O and page mappings need.
const UnitBytes = 1 << unitShift

const unitShift = 12

// RoundUp is the least multiple of UnitBytes that holds n bytes; n >= 0.
func RoundUp(n int64) int64 { return (n + UnitBytes - 1) &^ (UnitBytes - 1) }

// RoundDown is the greatest multiple of UnitBytes in n bytes; n >= 0.
func RoundDown(n int64) int64 { return n &^ (UnitBytes - 1) }

// Allocator hands out ranges of an address space: the arena's memory and
// the disk tier's extent files. It is the two-level segregated fit of Masmano,
// Ripoll, Crespo and Real ("TLSF: a New Dynamic Memory Allocator for Real-Time
// Systems", ECRTS 2004) over units of 4 KiB, with its records outside the
// space it manages.
//
// It owns one 32-byte record per live or free extent, in address order, with a
// tag of the caller's, the size-classed lists of the free ones, and an index
// from addresses to records. A free extent is joined with its free neighbours at once, so there are never
// two in a row.
//
// Where TLSF finds a block's neighbours through tags inside the memory, a file
// has no room for tags, and an array with a tag for each unit would cost 5
// billion entries on a disk of 20 TiB. So the space is cut into buckets of 256
// KiB to 1 MiB, each knowing the record of the first extent that starts in it;
// the records after it are one link away. The index costs at most 16 bytes per
// MiB, never grows, and a lookup walks at most the extents that start in one
// bucket: none but the wanted one when they are as large as the bucket, and
// never more than 256.
//
// Create it with NewAllocator. It never touches the bytes it manages, does no I/O, and is not
// safe for concurrent use.
type Allocator struct {
	records records
	index   index
	bins    bins
	units   int64 // capacity
	free    int64 // units not handed out
	live    int64 // extents handed out
}

// NewAllocator returns an allocator of capacityBytes, rounded down to whole units, all
// of it free. A negative capacity counts as none.
func NewAllocator(capacityBytes int64) *Allocator {
	units := max(capacityBytes, 0) >> unitShift
	a := &Allocator{units: units, free: units}
	a.records.init(units)
	a.index.init(units)
	a.bins.init(units)
	if units > 0 {
		i := a.records.take(0, units)
		a.records.link(i, end)
		a.index.insert(&a.records, i)
		a.bins.push(&a.records, i)
	}
	return a
}

// Alloc hands out an extent of n bytes rounded up to whole units and returns
// its offset. It reports false when n is not positive or above LargestFree. It
// takes constant time and prefers the extent freed last, whose memory is
// likely still in the caches.
func (a *Allocator) Alloc(n int64) (off int64, ok bool) {
	return a.AllocTag(n, 0)
}

// AllocTag is Alloc with a number to keep with the extent; see Walk.
func (a *Allocator) AllocTag(n int64, tag uint32) (off int64, ok bool) {
	if n <= 0 || n > a.free<<unitShift {
		return 0, false
	}
	units := toUnits(n)
	i := a.bins.find(&a.records, units)
	if i == none {
		return 0, false
	}
	a.bins.remove(&a.records, i)
	if a.records.at(i).units > units {
		a.bins.push(&a.records, a.split(i, units))
	}
	a.occupy(i, tag)
	return a.records.at(i).start << unitShift, true
}

// Free takes back the extent that Alloc or Reserve handed out at off with size
// n (the exact size or the rounded one) and joins it with free neighbours.
// Anything else (a second Free, a part of an extent, a foreign range) is a
// broken invariant of the caller, and changes nothing.
func (a *Allocator) Free(off, n int64) {
	i := none
	if off >= 0 && off&(UnitBytes-1) == 0 && off>>unitShift < a.units {
		i = a.index.lookup(&a.records, off>>unitShift)
	}
	if i == none || a.records.at(i).isFree() || n <= 0 || a.records.at(i).units != toUnits(n) {
		base.Broken("extent: free of [%d, +%d), which is not handed out", off, n)
		return
	}
	a.live--
	a.free += a.records.at(i).units
	if next := a.records.at(i).next; a.records.at(next).isFree() {
		a.bins.remove(&a.records, next)
		a.join(i, next)
	}
	if prev := a.records.at(i).prev; a.records.at(prev).isFree() {
		a.bins.remove(&a.records, prev)
		a.join(prev, i)
		i = prev
	}
	a.bins.push(&a.records, i)
}

// Reserve hands out the given range, as recovery needs it: off must be a
// multiple of UnitBytes, n is rounded up to whole units. It reports false, and
// changes nothing, when the range is malformed, out of bounds or not wholly
// free. The order of calls does not matter for its cost.
func (a *Allocator) Reserve(off, n int64) bool { return a.ReserveTag(off, n, 0) }

// ReserveTag is Reserve with a number to keep with the extent; see Walk.
func (a *Allocator) ReserveTag(off, n int64, tag uint32) bool {
	if off < 0 || off&(UnitBytes-1) != 0 || n <= 0 || n > a.Capacity() || off > a.Capacity()-n {
		return false
	}
	start, units := off>>unitShift, toUnits(n)
	i := a.index.covering(&a.records, start)
	r := a.records.at(i)
	if !r.isFree() || r.start+r.units < start+units {
		return false
	}
	a.bins.remove(&a.records, i)
	if head := start - r.start; head > 0 {
		rest := a.split(i, head)
		a.bins.push(&a.records, i)
		i = rest
	}
	if a.records.at(i).units > units {
		a.bins.push(&a.records, a.split(i, units))
	}
	a.occupy(i, tag)
	return true
}

// FreeFrom is how many bytes from off on are free in one run; 0 if off is not.
func (a *Allocator) FreeFrom(off int64) int64 {
	unit := off >> unitShift
	if off < 0 || unit >= a.units {
		return 0
	}
	r := a.records.at(a.index.covering(&a.records, unit))
	if !r.isFree() {
		return 0
	}
	return (r.start + r.units - unit) << unitShift
}

// Capacity is the size of the space in bytes.
func (a *Allocator) Capacity() int64 { return a.units << unitShift }

// FreeBytes is the sum of the free pieces.
func (a *Allocator) FreeBytes() int64 { return a.free << unitShift }

// UsedBytes is the sum of the extents handed out, rounding included.
func (a *Allocator) UsedBytes() int64 { return (a.units - a.free) << unitShift }

// Extents is the number of extents handed out.
func (a *Allocator) Extents() int64 { return a.live }

// LargestFree is the largest n that Alloc would grant now, in bytes. That is
// the largest free extent, except when more than 64 free extents share the
// largest size class: then it may be up to 1/32 below it.
func (a *Allocator) LargestFree() int64 {
	return a.bins.largest(&a.records) << unitShift
}

// split cuts extent i, which is on no list, after its first units and returns
// the rest, which is on no list either.
func (a *Allocator) split(i uint32, units int64) uint32 {
	r := a.records.at(i)
	rest := a.records.take(r.start+units, r.units-units)
	r.units = units
	a.records.link(rest, r.next)
	a.index.insert(&a.records, rest)
	return rest
}

// join adds extent j to i, its predecessor. Both are on no list.
func (a *Allocator) join(i, j uint32) {
	a.index.remove(&a.records, j)
	a.records.at(i).units += a.records.at(j).units
	a.records.unlink(j)
}

// occupy marks extent i, which is on no list, as handed out.
func (a *Allocator) occupy(i, tag uint32) {
	r := a.records.at(i)
	r.prevFree, r.nextFree = live, tag
	a.free -= r.units
	a.live++
}

// toUnits rounds n bytes up to whole units; n > 0, so nothing overflows.
func toUnits(n int64) int64 { return (n-1)>>unitShift + 1 }

// Every power of two of sizes is cut into 32 classes, as the TLSF paper
// recommends (section 3.3, SLI = 5): a class spans 1/32 of its size.
const (
	slotBits = 5
	slots    = 1 << slotBits
)

// searchLimit bounds the walk through one class, where extents of nearly the
// same size differ: it keeps Alloc at constant time.
const searchLimit = 64

// bins are the lists of free extents, one for each size class, and two levels
// of bitmaps that tell which lists hold something.
type bins struct {
	rows  uint64          // bit i: row i has a list that is not empty
	slots []uint32        // by row; bit j: list j of the row is not empty
	heads [][slots]uint32 // by row and slot
}

func (b *bins) init(units int64) {
	row, _ := class(units)
	b.slots = make([]uint32, row+1)
	b.heads = make([][slots]uint32, row+1)
}

// class returns the list for extents of the given size. Row 0 has one list for
// each size below 32 units; row i > 0 covers [32, 64) << (i-1).
func class(units int64) (row, slot int) {
	if units < slots {
		return 0, int(units)
	}
	row = bits.Len64(uint64(units)) - slotBits
	return row, int(units>>(row-1)) - slots
}

// find returns a free extent of at least units, or none.
func (b *bins) find(t *records, units int64) uint32 {
	row, slot := class(units)
	// The extent freed last comes first if it is the right one: its memory is
	// warm, and nothing larger is split.
	if own := b.heads[row][slot]; own != none && t.at(own).units >= units {
		return own
	}
	// Every extent of the classes above the request's own is large enough.
	if i := b.above(row, slot); i != none {
		return i
	}
	for i, left := b.heads[row][slot], searchLimit; i != none && left > 0; left-- {
		if t.at(i).units >= units {
			return i
		}
		i = t.at(i).nextFree
	}
	return none
}

// above returns the head of the first list after the given one that is not
// empty, or none.
func (b *bins) above(row, slot int) uint32 {
	// Shifting by the full width gives 0 in Go, which is what the last slot
	// and the last row need.
	if m := b.slots[row] & (^uint32(0) << (slot + 1)); m != 0 {
		return b.heads[row][bits.TrailingZeros32(m)]
	}
	m := b.rows & (^uint64(0) << (row + 1))
	if m == 0 {
		return none
	}
	row = bits.TrailingZeros64(m)
	return b.heads[row][bits.TrailingZeros32(b.slots[row])]
}

// largest returns the size of the largest free extent that find would return.
func (b *bins) largest(t *records) int64 {
	if b.rows == 0 {
		return 0
	}
	row := bits.Len64(b.rows) - 1
	slot := bits.Len32(b.slots[row]) - 1
	var units int64
	for i, left := b.heads[row][slot], searchLimit; i != none && left > 0; left-- {
		r := t.at(i)
		units = max(units, r.units)
		i = r.nextFree
	}
	return units
}

// push puts extent i at the head of its list, which makes it free.
func (b *bins) push(t *records, i uint32) {
	r := t.at(i)
	row, slot := class(r.units)
	head := b.heads[row][slot]
	r.prevFree, r.nextFree = none, head
	if head != none {
		t.at(head).prevFree = i
	}
	b.heads[row][slot] = i
	b.slots[row] |= 1 << slot
	b.rows |= 1 << row
}

// remove takes extent i out of its list.
func (b *bins) remove(t *records, i uint32) {
	r := t.at(i)
	if r.nextFree != none {
		t.at(r.nextFree).prevFree = r.prevFree
	}
	if r.prevFree != none {
		t.at(r.prevFree).nextFree = r.nextFree
		return
	}
	row, slot := class(r.units)
	b.heads[row][slot] = r.nextFree
	if r.nextFree == none {
		if b.slots[row] &^= 1 << slot; b.slots[row] == 0 {
			b.rows &^= 1 << row
		}
	}
}
