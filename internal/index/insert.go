package index

import "fmt"

// Insert does what Add does for one chunk of which only the parent's hash is
// known, as in recovery, in any order. A parent not yet known becomes a
// detached placeholder, joined when its own parent is inserted or named by
// an Add. On ErrInconsistent nothing has changed.
//
// Joining a piece that has branches walks from parent to the root, run by
// run, to make sure that it is not below itself.
func (t *Tree) Insert(space, parent, hash Hash, set Loc) error {
	if hash == (Hash{}) || hash == parent {
		return fmt.Errorf("radix: chunk %x cannot follow %x: %w", hash, parent, ErrInconsistent)
	}
	s := t.ids[space]
	slot, above := t.find(s, hash), t.find(s, parent)
	linked := false
	if slot != 0 {
		var have Hash
		if have, linked = t.parentOf(slot); linked && have != parent {
			return fmt.Errorf("radix: chunk %x is known below %x, not %x: %w", hash, have, parent, ErrInconsistent)
		}
		if !linked && above != 0 && t.isBelow(above, slot) {
			return fmt.Errorf("radix: chunk %x would be below itself: %w", hash, ErrInconsistent)
		}
	}
	if !linked {
		t.linkOne(t.intern(space), parent, hash, above, slot)
		s = t.ids[space]
	}
	slot = t.find(s, hash)
	t.setLoc(s, slot, set, 0)
	t.prune(t.slots.owner(slot))
	return nil
}

// Claim is Insert for a parent that may be wrong. A chunk keeps the first parent
// that it was given; one that would be below itself keeps its children, and
// its own parent stays unknown. set counts in any case. It reports whether the
// chunk is behind parent now. The zero hash is no chunk, and passed over.
func (t *Tree) Claim(space, parent, hash Hash, set Loc) (stands bool) {
	if t.Insert(space, parent, hash, set) == nil {
		return true
	}
	if s := t.ids[space]; t.find(s, hash) != 0 {
		t.setLoc(s, t.find(s, hash), set, 0)
	} else if hash != (Hash{}) {
		_ = t.Insert(space, Hash{}, hash, set) // its own parent: an unknown chunk can be the first of a prompt
	}
	return false
}

// linkOne puts hash behind parent. above and slot are where they are now,
// 0 if unknown; slot, if known, is detached.
func (t *Tree) linkOne(s uint32, parent, hash Hash, above, slot uint32) {
	var end uint32
	switch {
	case parent == Hash{}:
		end = t.spaces[s].root
	case above != 0:
		end = t.endAt(above)
	case slot != 0:
		t.prepend(t.slots.owner(slot), parent)
		return
	default:
		end = t.extend(t.spaces[s].limbo, []Hash{parent})
	}
	if slot == 0 {
		t.extend(end, []Hash{hash})
		return
	}
	head := t.slots.owner(slot)
	t.runs.unlink(head)
	t.runs.link(end, head)
	t.merge(end)
}

// endAt makes slot the last of its run, which it returns.
func (t *Tree) endAt(slot uint32) uint32 {
	id := t.slots.owner(slot)
	if r := t.runs.At(id); slot != r.last() {
		return t.split(id, int(slot-r.start)+1)
	}
	return id
}

// isBelow tells whether slot is in the subtree of the detached chunk top.
func (t *Tree) isBelow(slot, top uint32) bool {
	head := t.slots.owner(top)
	for id := t.slots.owner(slot); id != 0; id = t.runs.At(id).parent {
		if id == head {
			return true
		}
	}
	return false
}

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

// isPrunable tells whether a run ends in a placeholder with nothing below.
func (t *Tree) isPrunable(r *run) bool {
	return r.len > 0 && r.child == 0 && *t.slots.loc(r.last()) == 0
}

// prune ends every change of the tree: it removes the placeholders a run ends
// in, if nothing is below, and moves a little of the rest.
func (t *Tree) prune(id uint32) {
	if t.isPrunable(t.runs.At(id)) {
		t.prunable = append(t.prunable, id)
	}
	t.pruneSome()
	t.repack()
}

// pruneSome removes at most pruneStep placeholders that are due. The number of a
// run that got children, or went, in the meantime does no harm.
func (t *Tree) pruneSome() {
	budget := pruneStep
	for len(t.prunable) > 0 && budget > 0 {
		id := t.prunable[len(t.prunable)-1]
		t.prunable = t.prunable[:len(t.prunable)-1]
		for budget > 0 && t.isPrunable(t.runs.At(id)) {
			r := t.runs.At(id)
			n := t.trim(id, budget)
			budget -= n
			if r.len > 0 {
				continue
			}
			id = t.removeRun(id)
		}
		if r := t.runs.At(id); t.isPrunable(r) {
			t.prunable = append(t.prunable, id)
		}
	}
}

// trim removes up to limit trailing placeholders of a run.
func (t *Tree) trim(id uint32, limit int) int {
	r := t.runs.At(id)
	locs := t.slots.locs(r.start, int(r.len))
	n := 0
	for n < limit && n < len(locs) && locs[len(locs)-1-n] == 0 {
		slot := r.last() - uint32(n)
		t.table.Remove(t.hashOf(slot), slot, t.slots.next(slot))
		n++
	}
	t.holes -= n
	keep := int(r.len) - n
	if keep == 0 {
		t.freeSlots(r)
		r.len = 0
		return n
	}
	t.slots.release(r.start+uint32(keep), n+int(r.tail)) // gone from the table already
	r.len, r.tail = uint16(keep), 0
	return n
}

// removeRun takes an empty run out of the tree and returns the one that was
// above it.
func (t *Tree) removeRun(id uint32) uint32 {
	above := t.runs.At(id).parent
	t.runs.unlink(id)
	t.runs.Give(id)
	a := t.runs.At(above)
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
