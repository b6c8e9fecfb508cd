package radix

// pruneStep bounds how many placeholders one call removes, so that the end of
// a very long chain of them stalls no caller. The rest goes with the
// following calls.
const pruneStep = 1024

// Set changes one chunk's locations, first clear, then set, and returns what
// they are now. It is false, and nothing happens, when the chunk is not known.
// A chunk left without location stays as a placeholder while something is
// below it; else it is removed, and with it the placeholders above up to one
// that has something else below.
func (t *Tree) Set(space, hash Hash, set, clear Loc) (now Loc, known bool) {
	s := t.ids[space]
	slot := t.find(s, hash)
	if slot == 0 {
		return 0, false
	}
	now = t.setLoc(s, slot, set, clear)
	if now == 0 {
		t.prune(t.slots.owner(slot))
	}
	return now, true
}

// DropLoc clears bits from chunks of a space, leaf side first, and prunes what
// is left without location. It stops after about limit chunks, so that the
// owner can let others in; more says to call again. A call begins at the first
// leaf again, at a byte for each chunk that stays because of other bits.
func (t *Tree) DropLoc(space Hash, bits Loc, limit int) (n int, more bool) {
	s := t.ids[space]
	if s == 0 {
		return 0, false
	}
	limit = max(limit, 1)
	for _, top := range [2]uint32{t.spaces[s].root, t.spaces[s].limbo} {
		for id := t.deepest(top); id != top && n < limit; id = t.nextUp(id) {
			n += t.dropRun(id, bits, limit-n)
		}
	}
	t.pruneSome(limit + pruneStep)
	return n, n >= limit || len(t.prunable) > 0
}

// dropRun clears bits from at most limit chunks of one run, last first.
func (t *Tree) dropRun(id uint32, bits Loc, limit int) (n int) {
	r := t.runs.at(id)
	for i := int(r.len) - 1; i >= 0 && n < limit; i-- {
		slot := r.start + uint32(i)
		if *t.slots.loc(slot)&bits != 0 {
			t.setLoc(r.space, slot, 0, bits)
			n++
		}
	}
	if n > 0 && t.isPrunable(r) {
		t.prunable = append(t.prunable, id)
	}
	return n
}

// isPrunable tells whether a run ends in a placeholder with nothing below.
func (t *Tree) isPrunable(r *run) bool {
	return r.len > 0 && r.child == 0 && *t.slots.loc(r.last()) == 0
}

// prune ends every change of the tree: it removes the placeholders a run ends
// in, if nothing is below, and moves a little of the rest.
func (t *Tree) prune(id uint32) {
	if t.isPrunable(t.runs.at(id)) {
		t.prunable = append(t.prunable, id)
	}
	t.pruneSome(pruneStep)
	t.repack()
}

// pruneSome removes at most budget placeholders that are due. The number of a
// run that got children, or went, in the meantime does no harm.
func (t *Tree) pruneSome(budget int) {
	for len(t.prunable) > 0 && budget > 0 {
		id := t.prunable[len(t.prunable)-1]
		t.prunable = t.prunable[:len(t.prunable)-1]
		for budget > 0 && t.isPrunable(t.runs.at(id)) {
			r := t.runs.at(id)
			n := t.trim(id, budget)
			budget -= n
			if r.len > 0 {
				continue
			}
			id = t.removeRun(id)
		}
		if r := t.runs.at(id); t.isPrunable(r) {
			t.prunable = append(t.prunable, id)
		}
	}
}

// trim removes up to limit trailing placeholders of a run.
func (t *Tree) trim(id uint32, limit int) int {
	r := t.runs.at(id)
	locs := t.slots.locs(r.start, int(r.len))
	n := 0
	for n < limit && n < len(locs) && locs[len(locs)-1-n] == 0 {
		slot := r.last() - uint32(n)
		t.table.remove(t.hashOf(slot), slot)
		n++
	}
	t.holes -= n
	keep := int(r.len) - n
	if keep == 0 {
		t.freeSlots(r)
		r.len = 0
		return n
	}
	t.truncate(r, keep)
	return n
}

// removeRun takes an empty run out of the tree and returns the one that was
// above it.
func (t *Tree) removeRun(id uint32) uint32 {
	above := t.runs.at(id).parent
	t.runs.unlink(id)
	t.runs.release(id)
	a := t.runs.at(above)
	if a.len == 0 {
		t.forget(a.space)
		return above
	}
	if child := t.runs.onlyChild(above); child != 0 {
		t.merge(above)
		return child // not prunable, and above may have gone
	}
	return above
}
