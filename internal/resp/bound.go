package resp

import (
	"context"
	"sync"
	"time"
)

// bound is a context with a deadline that starts a timer only for who waits for
// it. Commands are many and few of them wait, and a new timer wakes a thread of
// the runtime that sleeps until the next one.
type bound struct {
	context.Context // ends with it
	at              time.Time

	mu struct {
		sync.Mutex
		err    error           // once it has ended
		timed  context.Context // nil: nobody waits
		cancel context.CancelFunc
	}
}

func newBound(parent context.Context, at time.Time) *bound {
	return &bound{Context: parent, at: at}
}

// Deadline is part of context.Context.
func (b *bound) Deadline() (time.Time, bool) { return b.at, true }

// Done is part of context.Context.
func (b *bound) Done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.mu.timed != nil:
	case b.ended() != nil:
		b.mu.timed, b.mu.cancel = context.WithCancel(b.Context)
		b.mu.cancel()
	default:
		b.mu.timed, b.mu.cancel = context.WithDeadline(b.Context, b.at)
	}
	return b.mu.timed.Done()
}

// Err is part of context.Context.
func (b *bound) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended()
}

// ended is called with the mutex held.
func (b *bound) ended() error {
	switch {
	case b.mu.err != nil:
	case b.Context.Err() != nil:
		b.mu.err = b.Context.Err()
	case b.mu.timed != nil:
		b.mu.err = b.mu.timed.Err()
	case time.Until(b.at) <= 0: // reads one clock, and not two
		b.mu.err = context.DeadlineExceeded
	}
	return b.mu.err
}

// end cancels the context.
func (b *bound) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended() == nil {
		b.mu.err = context.Canceled
	}
	if b.mu.cancel != nil {
		b.mu.cancel()
	}
}
