package base

import (
	"context"
	"time"
)

// Signal tells all goroutines that wait of the next change of something. Its zero
// value is ready. The mutex that guards the something guards the signal too: a
// goroutine that looks at the state and then waits for the channel of Next, both
// taken in one hold of the mutex, misses no change.
type Signal struct {
	next chan struct{} // nil while no goroutine has asked
}

// Next returns a channel that is closed at the next Wake.
func (s *Signal) Next() <-chan struct{} {
	if s.next == nil {
		s.next = make(chan struct{})
	}
	return s.next
}

// Wake tells of a change. It costs nothing while no goroutine waits.
func (s *Signal) Wake() {
	if s.next != nil {
		close(s.next)
		s.next = nil
	}
}

// Poke wakes the goroutine that reads a channel of capacity 1, now or when it comes to it.
func Poke(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// Sleep returns after d, or with the error of ctx when that ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Await returns when something can be read of a channel, or with false when ctx has ended.
func Await[T any](ctx context.Context, c <-chan T) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

type queuedKey struct{}

// WithQueued returns a context for a load. Queued is called, perhaps more than once, when
// the load is in line, or waits for another's: what comes behind it may go then.
func WithQueued(ctx context.Context, queued func()) context.Context {
	return context.WithValue(ctx, queuedKey{}, queued)
}

// Queued says that the load of a context waits for its turn, or for another load.
func Queued(ctx context.Context) {
	if queued, ok := ctx.Value(queuedKey{}).(func()); ok {
		queued()
	}
}
