package ledger

const pageBits = 12 // 4,096 entries

// line is a queue of entries, each in it at most once: four bytes for one that
// is in it, and pages of entries of which none ever was have none.
type line struct {
	first, last uint32
	n           int
	// links lead from each entry to the one behind it, from the last to
	// itself; 0 is for those that are not in the line.
	links []*[1 << pageBits]uint32
}

// link returns where the link of id is.
func (q *line) link(id uint32) *uint32 {
	page := int(id >> pageBits)
	for len(q.links) <= page {
		q.links = append(q.links, nil)
	}
	if q.links[page] == nil {
		q.links[page] = new([1 << pageBits]uint32)
	}
	return &q.links[page][id&(1<<pageBits-1)]
}

// push puts id last, and reports whether it was not in the line already.
func (q *line) push(id uint32) bool {
	l := q.link(id)
	if *l != 0 {
		return false
	}
	*l = id
	if q.n == 0 {
		q.first = id
	} else {
		*q.link(q.last) = id
	}
	q.last = id
	q.n++
	return true
}

// pop takes out the first; there must be one.
func (q *line) pop() (id uint32) {
	id = q.first
	l := q.link(id)
	q.first, *l = *l, 0
	q.n--
	return id
}
