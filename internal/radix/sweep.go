package radix

// Entry is a chunk as SweepAll tells of it.
type Entry struct {
	Space, Hash Hash
	Parent      Hash // zero for the first of a prompt, and where it is not known
	Loc         Loc
}

// SweepAll is Sweep for the chunks of all spaces that have a location, a few hundred at
// most in one call, with their parents. fn must not keep its argument.
func SweepAll(t *Tree, from uint64, fn func(*Entry)) (next uint64) {
	e := new(Entry)
	_, next = piece(t, from, func(slot uint32) {
		if loc := *t.slots.loc(slot); loc != 0 {
			*e = Entry{Space: t.spaces[t.runs.at(t.slots.owner(slot)).space].id, Hash: t.slots.hash(slot), Loc: loc}
			e.Parent, _ = t.parentOf(slot)
			fn(e)
		}
	})
	return next
}

// piece calls fn for the slots in one segment of the table, that of a hash. It returns
// how many there are, and the first hash of the next segment, 0 after the last. No change
// moves a chunk to another hash.
func piece(t *Tree, from uint64, fn func(slot uint32)) (slots int, next uint64) {
	n := t.table.number(from)
	for _, b := range t.table.segment(n) {
		for _, slot := range b.slot {
			if slot != 0 {
				fn(slot)
			}
		}
	}
	own := 64 - t.table.depths[n] // the hashes of a segment differ in so many bits
	return int(t.table.counts[n]), (from>>own + 1) << own
}
