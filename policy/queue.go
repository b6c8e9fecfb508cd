package policy

// queue is a whole policy but for what a hit does: entries go in the order of
// one list, save those the owner refuses. See the package comment.
type queue struct {
	nodes   nodes
	list    list
	back    heap  // refused entries that came back
	newest  int64 // seq of what was put last at the list's back
	oldest  int64 // the same for its front
	inspect uint64
}

// enqueue puts id, in no list or heap, at the end that goes last.
func (q *queue) enqueue(id ID) {
	q.newest++
	q.nodes.at(uint32(id)).seq = q.newest
	q.list.pushBack(&q.nodes, id)
}

// jump puts id, in no list or heap, at the end that goes first.
func (q *queue) jump(id ID) {
	q.oldest--
	q.nodes.at(uint32(id)).seq = q.oldest
	q.list.pushFront(&q.nodes, id)
}

// leave takes a resident id out of wherever it is.
func (q *queue) leave(id ID) {
	n := q.nodes.resident(id)
	switch n.place {
	case listed:
		q.list.unlink(&q.nodes, id)
	case returned:
		q.back.take(&q.nodes, id)
	}
	n.place = absent
}

func (q *queue) Admit(uint64, int64) {}

func (q *queue) Remove(id ID) { q.leave(id) }

// Allow puts a refused entry back where the scan stands if it goes before
// all that is listed, as the parent of the victim just taken does in most
// orders, and else into the heap.
func (q *queue) Allow(id ID) {
	n := q.nodes.resident(id)
	switch {
	case n.place != refused:
	case q.list.empty() || n.seq < q.nodes.at(q.list.front-1).seq:
		q.list.pushFront(&q.nodes, id)
	default:
		q.back.push(&q.nodes, id, rank{seq: n.seq})
	}
}

func (q *queue) Evict(ok func(ID) bool) (ID, bool) {
	for {
		id, found := q.first()
		if !found {
			return 0, false
		}
		q.leave(id)
		q.inspect++
		if ok(id) {
			return id, true
		}
		q.nodes.at(uint32(id)).place = refused
	}
}

// first returns what goes next of the list's front and the heap's top.
func (q *queue) first() (ID, bool) {
	top, found := q.back.top()
	if q.list.empty() {
		return top.id, found
	}
	front := ID(q.list.front - 1)
	if found && top.seq < q.nodes.at(uint32(front)).seq {
		return top.id, true
	}
	return front, true
}

func (q *queue) Steps() uint64 { return q.inspect + q.back.steps }
