package stack

// segment is how many elements of a fifo lie together.
const segment = 256

// fifo is a queue whose calls cost the same however long it is, and which
// keeps no more memory than it needs. The zero fifo is empty.
type fifo[T any] struct {
	first, last *fifoSegment[T]
	n           int
}

type fifoSegment[T any] struct {
	elems      [segment]T
	begin, end int
	next       *fifoSegment[T]
}

func (q *fifo[T]) len() int { return q.n }

// front is the next element; the fifo must not be empty.
func (q *fifo[T]) front() *T { return &q.first.elems[q.first.begin] }

func (q *fifo[T]) push(v T) {
	if q.last == nil || q.last.end == segment {
		s := &fifoSegment[T]{}
		if q.last == nil {
			q.first = s
		} else {
			q.last.next = s
		}
		q.last = s
	}
	q.last.elems[q.last.end] = v
	q.last.end++
	q.n++
}

// pop takes the front; the fifo must not be empty.
func (q *fifo[T]) pop() T {
	var zero T
	s := q.first
	v := s.elems[s.begin]
	s.elems[s.begin] = zero
	s.begin++
	q.n--
	if s.begin == s.end {
		if q.first = s.next; q.first == nil {
			q.last = nil
		}
	}
	return v
}
