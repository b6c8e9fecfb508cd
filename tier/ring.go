package tier

// ring is a queue that reuses its memory. The zero ring is empty.
type ring[T any] struct {
	buf  []T // length is a power of two
	head int
	n    int
}

func (r *ring[T]) len() int { return r.n }

func (r *ring[T]) at(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

func (r *ring[T]) push(v T) {
	if r.n == len(r.buf) {
		grown := make([]T, max(16, 2*r.n))
		for i := range r.n {
			grown[i] = *r.at(i)
		}
		r.buf, r.head = grown, 0
	}
	r.n++
	*r.at(r.n - 1) = v
}

// pop takes the front; the ring must not be empty.
func (r *ring[T]) pop() T {
	var zero T
	v := *r.at(0)
	*r.at(0) = zero
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	return v
}

// filter keeps what keep accepts, in order.
func (r *ring[T]) filter(keep func(*T) bool) {
	for range r.n {
		if v := r.pop(); keep(&v) {
			r.push(v)
		}
	}
}
