package base

import (
	"sync"
	"time"
)

// Quiet sums what a log is to tell of, and says when: of the first at once, and of all
// that follow together, once in a while. It is safe for concurrent use; the zero Quiet has
// told nothing. Its mutex is a leaf.
type Quiet[T any] struct {
	mu struct {
		sync.Mutex
		sum  T
		told time.Time
	}
}

// Add has one added to the sum, and returns the sum if the log should tell of it now.
func (q *Quiet[T]) Add(now time.Time, every time.Duration, one func(*T)) (sum T, tell bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	one(&q.mu.sum)
	if !q.mu.told.IsZero() && now.Sub(q.mu.told) < every {
		return sum, false
	}
	sum, q.mu.sum, q.mu.told = q.mu.sum, sum, now
	return sum, true
}

// Increment adds one to a number, for Add.
func Increment[N int | uint64](n *N) { *n++ }
