package policy

// list is a doubly linked list through the nodes. It holds entries in rising
// order of seq.
type list struct {
	front, back uint32 // ID + 1
}

// pushBack makes id the last to go.
func (l *list) pushBack(t *nodes, id ID) {
	n := t.At(uint32(id))
	n.prev, n.next = l.back, 0
	n.setPlace(listed)
	if l.back != 0 {
		t.At(l.back - 1).next = uint32(id) + 1
	} else {
		l.front = uint32(id) + 1
	}
	l.back = uint32(id) + 1
}

// pushFront makes id the first to go.
func (l *list) pushFront(t *nodes, id ID) {
	n := t.At(uint32(id))
	n.prev, n.next = 0, l.front
	n.setPlace(listed)
	if l.front != 0 {
		t.At(l.front - 1).prev = uint32(id) + 1
	} else {
		l.back = uint32(id) + 1
	}
	l.front = uint32(id) + 1
}

// unlink takes id out. The caller sets its place.
func (l *list) unlink(t *nodes, id ID) {
	n := t.At(uint32(id))
	if n.prev != 0 {
		t.At(n.prev - 1).next = n.next
	} else {
		l.front = n.next
	}
	if n.next != 0 {
		t.At(n.next - 1).prev = n.prev
	} else {
		l.back = n.prev
	}
}

func (l *list) empty() bool { return l.front == 0 }
