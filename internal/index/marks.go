package index

// marks is a column of a page: the marks of each slot.
type marks [pageSlots]uint8

// Mark sets marks of a chunk, and clears others. It is false, and nothing happens, when
// the chunk is not known. They are gone when the chunk is.
func Mark(t *Tree, space, hash Hash, set, clear uint8) (known bool) {
	slot := t.find(t.ids[space], hash)
	if slot == 0 {
		return false
	}
	page, o := slot>>pageBits, slot&pageMask
	switch m := t.slots.marks[page]; {
	case m != nil:
		m[o] = m[o]&^clear | set
	case set != 0:
		m = new(marks)
		m[o], t.slots.marks[page] = set, m
	}
	return true
}

// Marks returns the marks of a chunk; 0 where it is not known.
func Marks(t *Tree, space, hash Hash) uint8 {
	slot := t.find(t.ids[space], hash)
	if slot == 0 || t.slots.marks[slot>>pageBits] == nil {
		return 0
	}
	return t.slots.marks[slot>>pageBits][slot&pageMask]
}

// Sweep calls fn for chunks of a space, from a place on that is 0 at first, after having
// looked at about limit chunks of any space. It returns the place to go on
// with, 0 after the last: so a caller that wants all can let others in between. A chunk
// that is there all the time is told of once, also if it moves meanwhile. fn may Mark.
func Sweep(t *Tree, space Hash, from uint64, limit int, fn func(hash Hash, loc Loc)) (next uint64) {
	s := t.ids[space]
	if s == 0 {
		return 0
	}
	return t.sweep(from, limit, func(slot uint32) {
		if t.runs.At(t.slots.owner(slot)).space == s {
			fn(t.slots.hash(slot), *t.slots.loc(slot))
		}
	})
}

// Has reports whether a space has chunks, or placeholders.
func Has(t *Tree, space Hash) bool { return t.ids[space] != 0 }

// copyMarks writes the marks of n slots of one stretch to out[at:], unless out is nil.
func (s *slots) copyMarks(out []uint8, at int, slot uint32, n int) {
	if out == nil {
		return
	}
	if m := s.marks[slot>>pageBits]; m != nil {
		copy(out[at:], m[slot&pageMask:][:n])
		return
	}
	clear(out[at : at+n])
}

// moveMarks moves the marks of n slots of one stretch to another.
func (s *slots) moveMarks(from, to uint32, n int) {
	m := s.marks[from>>pageBits]
	if m == nil {
		s.clearMarks(to, n)
		return
	}
	if s.marks[to>>pageBits] == nil {
		s.marks[to>>pageBits] = new(marks)
	}
	copy(s.marks[to>>pageBits][to&pageMask:][:n], m[from&pageMask:][:n])
}

func (s *slots) clearMarks(slot uint32, n int) {
	if m := s.marks[slot>>pageBits]; m != nil {
		clear(m[slot&pageMask:][:n])
	}
}

func (s *slots) markBytes() (n int64) {
	for _, m := range s.marks {
		if m != nil {
			n += pageSlots
		}
	}
	return n
}
