package extent

import "math/bits"

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
