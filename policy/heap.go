package policy

import "github.com/kvstored/kvstored/internal/base"

// rank orders entries over all lists of a policy: the lower goes first.
type rank struct {
	major uint64 // e.g. the frequency; 0 where there is one list
	seq   int64
}

func (r rank) less(s rank) bool {
	return r.major < s.major || r.major == s.major && r.seq < s.seq
}

// ranking knows the nodes and ranks of a heap's entries.
type ranking interface {
	At(i uint32) *node
	rank(id ID) rank
}

// rank is that of policies which order by seq alone.
func (t *nodes) rank(id ID) rank { return rank{seq: t.At(uint32(id)).seq()} }

// heap is a binary min-heap of entries by rank: 4 bytes each. Their ranks must
// not change while they are in it. An entry's node knows its slot, so that any
// entry can be taken out.
type heap struct {
	slots base.Pages[ID]
	n     uint32
	steps uint64 // pushes and takes; a pop is part of inspecting what it yields
}

// push adds id, whose node is not in a list.
func (h *heap) push(t ranking, id ID) {
	h.steps++
	h.slots.Reach(h.n)
	t.At(uint32(id)).setPlace(returned)
	h.n++
	h.up(t, h.n-1, id)
}

// top returns the entry that goes first.
func (h *heap) top() (ID, bool) {
	if h.n == 0 {
		return 0, false
	}
	return *h.slots.At(0), true
}

// pop removes the top. The caller sets its place.
func (h *heap) pop(t ranking) {
	h.n--
	if h.n > 0 {
		h.down(t, 0, *h.slots.At(h.n))
	}
}

// take removes id. The caller sets its place.
func (h *heap) take(t ranking, id ID) {
	h.steps++
	at := t.At(uint32(id)).next
	h.n--
	last := *h.slots.At(h.n)
	if at == h.n {
		return
	}
	if at > 0 && t.rank(last).less(t.rank(*h.slots.At((at - 1) / 2))) {
		h.up(t, at, last)
	} else {
		h.down(t, at, last)
	}
}

// up puts id at i or above.
func (h *heap) up(t ranking, i uint32, id ID) {
	r := t.rank(id)
	for i > 0 {
		above := *h.slots.At((i - 1) / 2)
		if !r.less(t.rank(above)) {
			break
		}
		h.set(t, i, above)
		i = (i - 1) / 2
	}
	h.set(t, i, id)
}

// down puts id at i or below.
func (h *heap) down(t ranking, i uint32, id ID) {
	r := t.rank(id)
	for {
		kid := 2*i + 1
		if kid >= h.n {
			break
		}
		first := *h.slots.At(kid)
		lowest := t.rank(first)
		if kid+1 < h.n {
			if other := *h.slots.At(kid + 1); t.rank(other).less(lowest) {
				kid, first, lowest = kid+1, other, t.rank(other)
			}
		}
		if !lowest.less(r) {
			break
		}
		h.set(t, i, first)
		i = kid
	}
	h.set(t, i, id)
}

func (h *heap) set(t ranking, i uint32, id ID) {
	*h.slots.At(i) = id
	t.At(uint32(id)).next = i
}
