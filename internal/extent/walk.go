package extent

import "math/bits"

// Piece is one extent of the space, handed out or free.
type Piece struct {
	Off, Bytes int64 // Bytes as rounded up to whole units
	Tag        uint32
	Free       bool
}

// Walk calls do with the piece that covers off and those after it (before it,
// if back) in address order, until do returns false or the space ends. An off
// outside the space has none. do may not call the allocator.
func (a *Allocator) Walk(off int64, back bool, do func(Piece) bool) {
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
func (a *Allocator) Largest(out []Piece) int {
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

func (a *Allocator) piece(i uint32) Piece {
	r := a.records.at(i)
	p := Piece{Off: r.start << unitShift, Bytes: r.units << unitShift, Free: r.isFree()}
	if !p.Free {
		p.Tag = r.nextFree
	}
	return p
}
