package policy

// order is one line of entries in which the next victim is looked for. Those
// that the owner refused stand outside of the line and keep their rank; the
// package comment says how they come back.
type order struct {
	list   list
	back   heap  // refused entries that came back
	newest int64 // seq of the entry put last at the list's back
	oldest int64 // the same for its front
}

// enqueue puts id, in no list or heap, at the end that goes last.
func (o *order) enqueue(t *nodes, id ID) {
	o.newest++
	t.At(uint32(id)).setSeq(o.newest)
	o.list.pushBack(t, id)
}

// jump puts id, in no list or heap, at the end that goes first.
func (o *order) jump(t *nodes, id ID) {
	o.oldest--
	t.At(uint32(id)).setSeq(o.oldest)
	o.list.pushFront(t, id)
}

// leave takes a resident id out of the list or the heap. A refused one is in
// neither. It is false for one that is not resident.
func (o *order) leave(t *nodes, id ID) bool {
	n := t.resident(id)
	if n == nil {
		return false
	}
	switch n.place() {
	case listed:
		o.list.unlink(t, id)
	case returned:
		o.back.take(t, id)
	}
	n.setPlace(absent)
	return true
}

// allow puts a refused entry back where the scan stands if it goes before
// all that is listed, as the parent of the victim just taken does in most
// orders, and else into the heap.
func (o *order) allow(t *nodes, id ID) {
	n := t.resident(id)
	switch {
	case n == nil || n.place() != refused:
	case o.list.empty() || n.seq() < t.At(o.list.front-1).seq():
		o.list.pushFront(t, id)
	default:
		o.back.push(t, id)
	}
}

// evict takes out the first entry that ok accepts and sets those before it
// aside. It adds the number of nodes that it inspects to inspected.
func (o *order) evict(t *nodes, ok func(ID) bool, inspected *uint64) (ID, bool) {
	for {
		id, found := o.first(t)
		if !found {
			return 0, false
		}
		n := t.At(uint32(id))
		if n.place() == listed {
			o.list.unlink(t, id)
		} else {
			o.back.pop(t)
		}
		n.setPlace(absent)
		*inspected++
		if ok(id) {
			return id, true
		}
		n.setPlace(refused)
	}
}

// first returns the next victim: the lower of the list's front and the heap's
// top.
func (o *order) first(t *nodes) (ID, bool) {
	top, found := o.back.top()
	if o.list.empty() {
		return top, found
	}
	front := ID(o.list.front - 1)
	if found && t.rank(top).less(t.rank(front)) {
		return top, true
	}
	return front, true
}
