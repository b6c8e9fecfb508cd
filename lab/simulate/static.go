package simulate

import "math"

// static is S3-FIFO with queues of fixed size, as its paper draws it (Yang et
// al., SOSP 2023, figure 5): a queue makes room when it is full, however much room
// the other has. It is no policy for a tier, which evicts when the whole is
// full and may refuse a victim.
type static struct {
	small, main, ghosts fifo
	blocks              []queued
	maxUses             uint8
}

// fifo is a list of blocks, the oldest in front. A block is in one at most.
type fifo struct {
	front, back uint32 // block number + 1
	n, size     int
}

type queued struct {
	prev, next uint32 // block number + 1
	in         *fifo  // nil for none
	uses       uint8  // since it came in
}

// newStatic makes one with a small queue of a share of the capacity, one block at
// least.
func newStatic(distinct, capacity int, o S3FIFO) *static {
	s := &static{blocks: make([]queued, distinct), maxUses: uint8(o.MaxUses)}
	s.small.size = max(1, int(math.RoundToEven(o.SmallShare*float64(capacity))))
	s.main.size = capacity - s.small.size
	s.ghosts.size = s.main.size
	return s
}

func (s *static) len() int { return s.small.n + s.main.n }

func (s *static) has(b uint32) bool {
	in := s.blocks[b].in
	return in == &s.small || in == &s.main
}

func (s *static) access(_ int, b uint32) (hit bool) {
	e := &s.blocks[b]
	switch e.in {
	case &s.ghosts:
		s.unlink(b)
		e.uses = 0
		s.toMain(b)
		return false
	case nil:
		s.toSmall(b)
		return false
	default:
		e.uses = min(e.uses+1, s.maxUses)
		return true
	}
}

// toSmall admits a new block. A block that was used meanwhile goes on to main and
// keeps its count.
func (s *static) toSmall(b uint32) {
	for s.small.n >= s.small.size {
		old := s.pop(&s.small)
		if s.blocks[old].uses > 0 {
			s.toMain(old)
		} else {
			s.toGhosts(old)
		}
	}
	s.blocks[b].uses = 0
	s.push(&s.small, b)
}

func (s *static) toMain(b uint32) {
	if s.main.size == 0 {
		return
	}
	for s.main.n >= s.main.size {
		old := s.pop(&s.main)
		if e := &s.blocks[old]; e.uses > 0 {
			e.uses--
			s.push(&s.main, old)
		} else {
			s.toGhosts(old)
		}
	}
	s.push(&s.main, b)
}

func (s *static) toGhosts(b uint32) {
	s.push(&s.ghosts, b)
	for s.ghosts.n > s.ghosts.size {
		s.pop(&s.ghosts)
	}
}

// push puts b, in no queue, last.
func (s *static) push(q *fifo, b uint32) {
	e := &s.blocks[b]
	e.in, e.prev, e.next = q, q.back, 0
	if q.back != 0 {
		s.blocks[q.back-1].next = b + 1
	} else {
		q.front = b + 1
	}
	q.back = b + 1
	q.n++
}

func (s *static) pop(q *fifo) uint32 {
	b := q.front - 1
	s.unlink(b)
	return b
}

func (s *static) unlink(b uint32) {
	e := &s.blocks[b]
	q := e.in
	if e.prev != 0 {
		s.blocks[e.prev-1].next = e.next
	} else {
		q.front = e.next
	}
	if e.next != 0 {
		s.blocks[e.next-1].prev = e.prev
	} else {
		q.back = e.prev
	}
	e.in = nil
	q.n--
}
