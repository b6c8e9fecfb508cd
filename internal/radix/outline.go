package radix

// outlined is how many places of a Loc a Stretch counts.
const outlined = 3

// Stretch is a run as Outline tells of it: chunks that follow each other without a branch.
type Stretch struct {
	Run      uint32 // its number, good until the tree changes
	Parent   uint32 // number of the run that it stands on; 0 if there is none
	Detached bool   // the way to it is not known
	Space    Hash
	First    Hash // its first chunk
	Chunks   int
	Known    int           // of them, those that are not placeholders
	In       [outlined]int // and those with each of the lowest bits of Loc
}

// Outline calls fn for the runs with the numbers from, from+1, ..., until it has looked at
// so many chunks and runs. It returns the number to go on with, 0 after the last one: so a
// caller that wants all can let others in between. A run that comes, goes, grows or is cut
// meanwhile may be missed, or told of twice.
func Outline(t *Tree, from uint32, limit int, fn func(*Stretch)) (next uint32) {
	for id := max(from, 1); id <= t.runs.used; id++ {
		if limit <= 0 {
			return id
		}
		r := t.runs.at(id)
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
	if t.runs.at(r.parent).len == 0 {
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
