package radix

// Spaces calls fn for every space that has chunks, in no order, until it
// returns false. It can be ranged over.
func (t *Tree) Spaces(fn func(space Hash) bool) {
	for id := range t.ids {
		if !fn(id) {
			return
		}
	}
}

// Census calls fn for the spaces with the numbers from, from+1, ..., at most
// limit of them, and how many chunks each has somewhere. It returns the number
// to go on with, 0 after the last one: so a caller that wants all can let others in
// between. A space that comes or goes meanwhile may be missed, or told of twice.
func (t *Tree) Census(from, limit int, fn func(space Hash, chunks int)) (next int) {
	from = max(from, 1) // 0 is not used
	end := min(from+max(limit, 1), len(t.spaces))
	for _, s := range t.spaces[min(from, end):end] {
		if s.root != 0 {
			fn(s.id, int(s.chunks))
		}
	}
	if end == len(t.spaces) {
		return 0
	}
	return end
}

// Walk calls fn for every chunk of a space, parents before children, until it
// returns false. depth counts the chunks before this one; where that is not
// known, because the chunk is detached, depth is negative and the parent of
// the topmost such chunk is zero. fn must not change the tree.
func (t *Tree) Walk(space Hash, fn func(hash, parent Hash, depth int, loc Loc) bool) {
	s := t.ids[space]
	if s == 0 {
		return
	}
	if t.walkBelow(t.spaces[s].root, true, fn) {
		t.walkBelow(t.spaces[s].limbo, false, fn)
	}
}

func (t *Tree) walkBelow(top uint32, attached bool, fn func(hash, parent Hash, depth int, loc Loc) bool) bool {
	depth := 0 // of the first chunk below run id
	for id := t.runs.at(top).child; id != 0; {
		r := t.runs.at(id)
		var parent Hash
		if above := t.runs.at(r.parent); above.len > 0 {
			parent = t.slots.hash(above.last())
		}
		locs := t.slots.locs(r.start, int(r.len))
		for i, hash := range t.slots.hashes(r.start, int(r.len)) {
			d := depth + i
			if !attached {
				d = -1
			}
			if !fn(hash, parent, d, locs[i]) {
				return false
			}
			parent = hash
		}
		depth += int(r.len)
		next := r.child
		for next == 0 && id != top {
			r = t.runs.at(id)
			depth -= int(r.len)
			next = r.next
			id = r.parent
		}
		id = next
	}
	return true
}

// deepest follows first children down to a leaf.
func (t *Tree) deepest(id uint32) uint32 {
	for child := t.runs.at(id).child; child != 0; child = t.runs.at(id).child {
		id = child
	}
	return id
}

// nextUp is the run after id when children come before their parents.
func (t *Tree) nextUp(id uint32) uint32 {
	if r := t.runs.at(id); r.next == 0 {
		return r.parent
	}
	return t.deepest(t.runs.at(id).next)
}
