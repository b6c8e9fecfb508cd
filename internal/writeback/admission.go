package writeback

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/tier"
)

// admission has stores that wait for room enter one after the other while DRAM must write
// its victims before their room is free: each store when there is room for all that it
// asks for. Without it all stores would run for the room of each victim, and each
// would get the room of one chunk where it asked for that of a prompt. A client has one
// place in the line, however many of its stores wait.
//
// It also learns how much room is wanted at a time, and has that kept free, so that
// victims are written ahead of the stores. It bounds nothing and reserves nothing: a
// store for which no victim makes room enters as well, and finds out why.
type admission struct {
	place   *semaphore.Weighted // of 1: the place of all clients
	wanted  atomic.Int64        // bytes, of stores that wait or have entered
	entered atomic.Int64        // bytes, of stores that have entered
	ahead   atomic.Int64        // bytes to be free besides what the watermarks leave

	mu struct {
		sync.Mutex
		clients map[ledger.Owner]*client // of which stores are admitted, or wait for that
	}
}

// client is the stores of one client that are in the line or wait to be.
type client struct {
	place  *semaphore.Weighted // of 1: which of them is in the line
	stores int
}

// acquire waits for a place until ctx ends. A try has it at once, or not.
func acquire(ctx context.Context, place *semaphore.Weighted, try bool) (waited bool, err error) {
	switch {
	case place.TryAcquire(1):
		return false, nil
	case try:
		return true, tier.ErrMustWait
	case place.Acquire(ctx, 1) != nil:
		return true, fmt.Errorf("%w: %w", tier.ErrNoSpace, context.Cause(ctx))
	}
	return true, nil
}

// Shares of DRAM, one in so many bytes: what is evicted for all stores that wait, and
// what one store may ask for.
const (
	aheadShare   = 4
	requestShare = 16
)

// forgetting is how many bytes must come for one byte less to be kept free.
const forgetting = 8

// Enter waits until there is room for n bytes of a store, or nothing is on its way
// out of DRAM that would make some, and reports whether it waited. The caller calls leave
// when it has what it gets. A store that only tries enters in front of no other.
func (s *Writers) Enter(ctx context.Context, by ledger.Owner, try bool, n int64) (waited bool, leave func(), err error) {
	t := &s.admission
	n = min(n, s.capacity/requestShare)
	t.wanted.Add(n)
	if waited, err = t.await(ctx, s, by, try, n); err != nil {
		t.wanted.Add(-n)
		return waited, nil, fmt.Errorf("reserve: waiting for a turn: %w", err)
	}
	return waited, func() {
		t.wanted.Add(-n)
		t.entered.Add(-n)
	}, nil
}

// await enters with n bytes, in order.
func (t *admission) await(ctx context.Context, s *Writers, by ledger.Owner, try bool, n int64) (waited bool, err error) {
	first := t.join(by)
	defer t.leave(by)
	if waited, err = acquire(ctx, first, try); err != nil {
		return true, err
	}
	defer first.Release(1)
	behind, err := acquire(ctx, t.place, try)
	if err != nil {
		return true, err
	}
	defer t.place.Release(1)
	most := s.capacity / aheadShare
	forRoom, err := s.o.Hot.MakeRoom(ctx, tier.Room{
		Bytes:    min(t.entered.Load()+n, most),
		Ahead:    func() int64 { return min(t.wanted.Load(), most) },
		Demoting: s.demoting.Load,
		Drop:     s.Demote,
		Try:      try,
	})
	if forRoom {
		t.ahead.Store(max(t.ahead.Load(), min(t.wanted.Load(), most)))
	}
	if err == nil {
		t.entered.Add(n)
	}
	return waited || behind || forRoom, err
}

// join counts a store of a client, and leave no more.
func (t *admission) join(o ledger.Owner) *semaphore.Weighted {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.mu.clients[o]
	if c == nil {
		c = &client{place: semaphore.NewWeighted(1)}
		t.mu.clients[o] = c
	}
	c.stores++
	return c.place
}

func (t *admission) leave(o ledger.Owner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.mu.clients[o]; c.stores > 1 {
		c.stores--
	} else {
		delete(t.mu.clients, o)
	}
}

// Came notes that so many bytes came to DRAM, by stores or from below: less is kept free,
// unless stores wait again.
func (s *Writers) Came(bytes int64) {
	t := &s.admission
	if was := t.ahead.Load(); was > 0 {
		t.ahead.CompareAndSwap(was, max(0, was-(bytes+forgetting-1)/forgetting))
	}
}

// leaving is what is on its way out of DRAM, less what is to be free besides what the
// watermarks leave.
func (s *Writers) leaving() int64 { return s.demoting.Load() - s.admission.ahead.Load() }
