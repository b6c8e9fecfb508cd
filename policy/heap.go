package policy

// rank orders entries over all lists of a policy: the lower goes first.
type rank struct {
	major uint64 // e.g. the frequency; 0 where there is one list
	seq   int64
}

func (r rank) less(s rank) bool {
	return r.major < s.major || r.major == s.major && r.seq < s.seq
}

// heap is a binary min-heap of entries by rank. An entry's node knows its
// slot, so that any entry can be taken out.
type heap struct {
	slots pages[slot]
	n     uint32
	steps uint64 // pushes and takes; a pop is part of inspecting what it yields
}

type slot struct {
	rank
	id ID
}

// push adds id, whose node is not in a list.
func (h *heap) push(t *nodes, id ID, r rank) {
	h.steps++
	h.slots.reach(h.n)
	t.at(uint32(id)).setPlace(returned)
	h.n++
	h.up(t, h.n-1, slot{r, id})
}

// top returns the entry that goes first.
func (h *heap) top() (slot, bool) {
	if h.n == 0 {
		return slot{}, false
	}
	return *h.slots.at(0), true
}

// pop removes what goes first. The caller sets its place.
func (h *heap) pop(t *nodes) {
	h.n--
	if h.n > 0 {
		h.down(t, 0, *h.slots.at(h.n))
	}
}

// take removes id. The caller sets its place.
func (h *heap) take(t *nodes, id ID) {
	h.steps++
	at := t.at(uint32(id)).next
	h.n--
	last := *h.slots.at(h.n)
	if at == h.n {
		return
	}
	if at > 0 && last.less(h.slots.at((at-1)/2).rank) {
		h.up(t, at, last)
	} else {
		h.down(t, at, last)
	}
}

// up puts s at i or above.
func (h *heap) up(t *nodes, i uint32, s slot) {
	for i > 0 {
		above := *h.slots.at((i - 1) / 2)
		if !s.less(above.rank) {
			break
		}
		h.set(t, i, above)
		i = (i - 1) / 2
	}
	h.set(t, i, s)
}

// down puts s at i or below.
func (h *heap) down(t *nodes, i uint32, s slot) {
	for {
		kid := 2*i + 1
		if kid >= h.n {
			break
		}
		if kid+1 < h.n && h.slots.at(kid+1).less(h.slots.at(kid).rank) {
			kid++
		}
		if !h.slots.at(kid).less(s.rank) {
			break
		}
		h.set(t, i, *h.slots.at(kid))
		i = kid
	}
	h.set(t, i, s)
}

func (h *heap) set(t *nodes, i uint32, s slot) {
	*h.slots.at(i) = s
	t.at(uint32(s.id)).next = i
}
