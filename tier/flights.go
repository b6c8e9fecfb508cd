package tier

import (
	"context"
	"slices"
	"sync"
)

// Fetch brings the value of a key. It may run after the Do that passed it has
// returned, because others still wait. It must return soon after ctx has
// ended, and must return: a panic or runtime.Goexit in it is not caught. Next
// to an error its value is ignored.
type Fetch[V any] func(ctx context.Context) (V, error)

// Flights joins concurrent fetches of the same key. The zero value is ready;
// set the fields before the first Do. It is safe for concurrent use.
type Flights[K comparable, V any] struct {
	// Joined is told of a Do that waits for another's fetch, by its context. Nil is not
	// called.
	Joined func(ctx context.Context)
	// Clone returns one more reference to v for another waiter. It must not
	// fail or block. Nil hands the same value to all.
	Clone func(v V) V
	// Discard releases a value without a waiter. Nil drops it.
	Discard func(v V)

	running sync.WaitGroup
	mu      struct {
		sync.Mutex
		calls map[K]*fetching[V]
	}
}

// fetching is one key being fetched. The mutex of Flights guards its fields.
type fetching[V any] struct {
	waiters []*waiter[V] // in order of arrival
	leader  *waiter[V]   // whose fetch runs; it may have left
	ctx     context.Context
	cancel  context.CancelFunc // called when waiters becomes empty
}

// waiter is one caller inside Do. The goroutine that takes it out of its call's
// waiters either is that caller, which leaves, or owes it exactly one send on
// done.
type waiter[V any] struct {
	ctx   context.Context
	fetch Fetch[V]
	done  chan result[V] // one slot, so that sending never blocks
}

type result[V any] struct {
	value V
	err   error
}

// Do returns the value of k. If k is being fetched already, Do waits for that.
// Otherwise, or when all fetches before it have failed, the group runs fetch. The
// caller owns the returned value.
//
// When ctx ends first, Do returns ctx.Err() and the fetch goes on for the
// others; if there are none its context ends, and its value is discarded.
func (g *Flights[K, V]) Do(ctx context.Context, k K, fetch Fetch[V]) (value V, err error) {
	if err := ctx.Err(); err != nil {
		return value, err
	}
	w := &waiter[V]{ctx: ctx, fetch: fetch, done: make(chan result[V], 1)}
	if g.join(k, w) && g.Joined != nil {
		g.Joined(ctx)
	}
	select {
	case r := <-w.done:
		return r.value, r.err
	case <-ctx.Done():
	}
	if g.leave(k, w) {
		return value, ctx.Err()
	}
	// The result is on its way with a reference that must not be lost.
	r := <-w.done
	return r.value, r.err
}

// Wait returns when no fetch runs any more, those that every waiter has left
// included. Call it after the last Do.
func (g *Flights[K, V]) Wait() { g.running.Wait() }

// join adds w to the call for k, or starts one. It reports whether there was one.
func (g *Flights[K, V]) join(k K, w *waiter[V]) (joined bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.mu.calls[k]; c != nil {
		c.waiters = append(c.waiters, w)
		return true
	}
	if g.mu.calls == nil {
		g.mu.calls = make(map[K]*fetching[V])
	}
	c := &fetching[V]{waiters: []*waiter[V]{w}}
	c.lead(w)
	g.mu.calls[k] = c
	g.running.Go(func() { g.run(k, c) })
	return false
}

// leave takes w out of its call. It reports false if a result is on its way.
func (g *Flights[K, V]) leave(k K, w *waiter[V]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.mu.calls[k]
	if c == nil || !c.remove(w) {
		return false
	}
	if len(c.waiters) == 0 {
		c.cancel()
	}
	return true
}

// run lets one waiter after the other fetch until the call has an end.
func (g *Flights[K, V]) run(k K, c *fetching[V]) {
	for {
		// Only this goroutine changes leader and ctx once the call is known.
		value, err := c.leader.fetch(c.ctx)
		if err == nil {
			g.mu.Lock()
			waiters := g.endLocked(k, c)
			g.mu.Unlock()
			g.deliver(waiters, value)
			return
		}
		if g.fail(k, c, err) {
			return
		}
	}
}

func (g *Flights[K, V]) endLocked(k K, c *fetching[V]) []*waiter[V] {
	waiters := c.waiters
	c.waiters = nil
	c.cancel()
	delete(g.mu.calls, k)
	return waiters
}

// deliver hands one reference to each waiter. The original goes last, so that
// its reference is held while the others are taken.
func (g *Flights[K, V]) deliver(waiters []*waiter[V], value V) {
	if len(waiters) == 0 {
		if g.Discard != nil {
			g.Discard(value)
		}
		return
	}
	for _, w := range waiters[1:] {
		v := value
		if g.Clone != nil {
			v = g.Clone(value)
		}
		w.done <- result[V]{value: v}
	}
	waiters[0].done <- result[V]{value: value}
}

// fail gives err to the leader, unless it has left, and passes the turn on. It reports
// true if no waiter is left to take it.
func (g *Flights[K, V]) fail(k K, c *fetching[V], err error) (ended bool) {
	leader := c.leader
	g.mu.Lock()
	waits := c.remove(leader)
	if ended = len(c.waiters) == 0; ended {
		g.endLocked(k, c)
	} else {
		c.cancel()
		c.lead(c.waiters[0])
	}
	g.mu.Unlock()
	if waits {
		leader.done <- result[V]{err: err}
	}
	return ended
}

// lead makes w's fetch the next one to run.
func (c *fetching[V]) lead(w *waiter[V]) {
	c.leader = w
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(w.ctx))
}

func (c *fetching[V]) remove(w *waiter[V]) bool {
	i := slices.Index(c.waiters, w)
	if i < 0 {
		return false
	}
	c.waiters = slices.Delete(c.waiters, i, i+1)
	return true
}
