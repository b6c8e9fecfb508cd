package stack

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/kvstored/kvstored/tier"
)

// turns has stores that wait for room enter one after the other while DRAM must write
// its victims before their room is free: each store when there is room for all that it
// asks for. Without turns all stores would run for the room of each victim, and each
// would get the room of one chunk where it asked for that of a prompt.
//
// It also learns how much room is wanted at a time, and has that kept free, so that
// victims are written ahead of the stores. It bounds nothing and reserves nothing: a
// store for which no victim makes room enters as well, and finds out why.
type turns struct {
	turn    chan struct{} // capacity 1; Go serves the goroutines that wait for it in order
	wanted  atomic.Int64  // bytes, of stores that wait or have entered
	entered atomic.Int64  // of these, of those that have entered
	ahead   atomic.Int64  // bytes to be free besides what the watermarks leave
}

// Shares of DRAM, one in so many bytes: what is evicted for all stores that wait, and
// what one store may ask for in its turn.
const (
	aheadShare = 4
	turnShare  = 16
)

// forgetting is how many bytes must be stored for one byte less to be kept free.
const forgetting = 8

// enterTurn waits until there is room for n bytes, or nothing is on its way out of DRAM
// that would make some, and reports whether it waited. The caller calls leave when it has
// what it gets.
func (d *dram) enterTurn(ctx context.Context, n int64) (waited bool, leave func(), err error) {
	t := &d.turns
	n = min(n, d.room/turnShare)
	t.wanted.Add(n)
	if waited, err = t.await(ctx, d, n); err != nil {
		t.wanted.Add(-n)
		return waited, nil, fmt.Errorf("reserve: waiting for a turn: %w", err)
	}
	return waited, func() {
		t.wanted.Add(-n)
		t.entered.Add(-n)
	}, nil
}

// await enters with n bytes, in turn.
func (t *turns) await(ctx context.Context, d *dram, n int64) (waited bool, err error) {
	select {
	case t.turn <- struct{}{}:
	default:
		waited = true
		select {
		case t.turn <- struct{}{}:
		case <-ctx.Done():
			return true, fmt.Errorf("%w: %w", tier.ErrNoSpace, context.Cause(ctx))
		}
	}
	defer func() { <-t.turn }()
	most := d.room / aheadShare
	forRoom, err := d.hot.MakeRoom(ctx, tier.Room{
		Bytes:    min(t.entered.Load()+n, most),
		Ahead:    func() int64 { return min(t.wanted.Load(), most) },
		Demoting: d.demotingBytes.Load,
		Drop:     d.demote,
	})
	if forRoom {
		t.ahead.Store(max(t.ahead.Load(), min(t.wanted.Load(), most)))
	}
	if err == nil {
		t.entered.Add(n)
	}
	return waited || forRoom, err
}

// forget notes that so many bytes were stored: less is kept free, unless stores wait
// again.
func (t *turns) forget(bytes int64) {
	if was := t.ahead.Load(); was > 0 {
		t.ahead.CompareAndSwap(was, max(0, was-(bytes+forgetting-1)/forgetting))
	}
}

// leaving is what is on its way out of DRAM, less what is to be free besides what the
// watermarks leave.
func (d *dram) leaving() int64 { return d.demotingBytes.Load() - d.turns.ahead.Load() }
