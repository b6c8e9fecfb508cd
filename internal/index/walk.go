package index

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
	for id := t.runs.At(top).child; id != 0; {
		r := t.runs.At(id)
		var parent Hash
		if above := t.runs.At(r.parent); above.len > 0 {
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
			r = t.runs.At(id)
			depth -= int(r.len)
			next = r.next
			id = r.parent
		}
		id = next
	}
	return true
}

// Entry is a chunk as SweepAll tells of it.
type Entry struct {
	Space, Hash Hash
	Parent      Hash // zero for the first of a prompt, and where it is not known
	Loc         Loc
}

// sweepPiece is about how many chunks one call of SweepAll looks at.
const sweepPiece = 256

// SweepAll is Sweep for the chunks of all spaces that have a location, a few hundred at
// most in one call, with their parents. fn must not keep its argument.
func SweepAll(t *Tree, from uint64, fn func(*Entry)) (next uint64) {
	e := new(Entry)
	return t.sweep(from, sweepPiece, func(slot uint32) {
		if loc := *t.slots.loc(slot); loc != 0 {
			*e = Entry{Space: t.spaces[t.runs.At(t.slots.owner(slot)).space].id, Hash: t.slots.hash(slot), Loc: loc}
			e.Parent, _ = t.parentOf(slot)
			fn(e)
		}
	})
}

// sweep calls fn for slots until it has looked at about as many, and chains of the table, as
// limit says. See Index.Sweep: no change moves a chunk to another place.
func (t *Tree) sweep(from uint64, limit int, fn func(slot uint32)) (next uint64) {
	for next = from; limit > 0; limit-- {
		next = t.table.Sweep(next, func(slot uint32) {
			fn(slot)
			limit--
		})
		if next == 0 {
			break
		}
	}
	return next
}

// stretchPlaces is how many places of a Loc a Stretch counts.
const stretchPlaces = 3

// Stretch is a run as EachStretch tells of it: chunks that follow each other without a branch.
type Stretch struct {
	Run      uint32 // its number, good until the tree changes
	Parent   uint32 // number of the run that it stands on; 0 if there is none
	Detached bool   // the way to it is not known
	Space    Hash
	First    Hash // its first chunk
	Chunks   int
	Known    int                // of them, those that are not placeholders
	In       [stretchPlaces]int // and those with each of the lowest bits of Loc
}

// EachStretch calls fn for the runs with the numbers from, from+1, ..., until it has looked at
// so many chunks and runs. It returns the number to go on with, 0 after the last one: so a
// caller that wants all can let others in between. A run that comes, goes, grows or is cut
// meanwhile may be missed, or told of twice.
func EachStretch(t *Tree, from uint32, limit int, fn func(*Stretch)) (next uint32) {
	for id := max(from, 1); id < t.runs.Len(); id++ {
		if limit <= 0 {
			return id
		}
		r := t.runs.At(id)
		limit -= 1 + int(r.len)
		if r.len > 0 {
			st := stretchOf(t, id, r)
			fn(&st)
		}
	}
	return 0
}

// RunOf is the number of the run that a chunk is in; 0 if it is not known.
func RunOf(t *Tree, space, hash Hash) uint32 {
	slot := t.find(t.ids[space], hash)
	if slot == 0 {
		return 0
	}
	return t.slots.owner(slot)
}

func stretchOf(t *Tree, id uint32, r *run) Stretch {
	st := Stretch{Run: id, Parent: r.parent, Space: t.spaces[r.space].id, First: t.slots.hash(r.start), Chunks: int(r.len)}
	if t.runs.At(r.parent).len == 0 {
		st.Parent, st.Detached = 0, r.parent == t.spaces[r.space].limbo
	}
	for _, loc := range t.slots.locs(r.start, int(r.len)) {
		if loc != 0 {
			st.Known++
		}
		for bit := range st.In {
			st.In[bit] += int(loc >> bit & 1)
		}
	}
	return st
}
