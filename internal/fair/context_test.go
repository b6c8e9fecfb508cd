package fair

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// due makes a turn's slice end now.
func (t *Turn) due() { t.began = time.Now().Add(-slice) }

// TestWaitEndsWithContext: a turn waits for a place no longer than its context
// lasts. Then it has none, and is not in line.
func TestWaitEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1, Machine{})
		u := busyUser(g)
		long := u.NewTurn()
		long.Begin(t.Context(), time.Now()) // and never yields
		turn, start := u.NewTurn(), time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), patience/2)
		defer cancel()
		turn.due()
		Yield(With(ctx, turn))
		if d := time.Since(start); d != patience/2 {
			t.Errorf("it waited for %v, its context lasted for %v", d, patience/2)
		}
		if g.Waiting() != 0 || turn.in || g.mu.taken != 1 {
			t.Errorf("%d wait, %d places are taken, one by it: %t; want it gone", g.Waiting(), g.mu.taken, turn.in)
		}
		turn.Leave()
		begun := time.Now()
		ctx, cancel = context.WithTimeout(t.Context(), patience/2)
		defer cancel()
		u.charge(begun, lightShare)
		err := turn.Begin(ctx, begun)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != patience/2 || turn.in || g.Waiting() != 0 {
			t.Errorf("%v after %v, with a place: %t, %d wait; its context lasted for %v", err, time.Since(begun), turn.in, g.Waiting(), patience/2)
		}
		turn.Leave()
		long.Leave()
		if g.mu.taken != 0 || len(g.mu.line) != 0 {
			t.Errorf("%d places are taken in the end, %d users are in line", g.mu.taken, len(g.mu.line))
		}
	})
}

// TestLocksAndPlaces: a turn that waits for a lock has no place, and one that has
// the lock waits for none.
func TestLocksAndPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which the user stays busy
		g := NewGate(1, Machine{})
		u := busyUser(g)
		var mu sync.Mutex
		holder, waiter, other := u.NewTurn(), u.NewTurn(), u.NewTurn()
		ctx := With(t.Context(), holder)
		Lock(ctx, &mu)
		waiter.Begin(t.Context(), time.Now())
		var done sync.WaitGroup
		done.Go(func() {
			ctx := With(t.Context(), waiter)
			Lock(ctx, &mu)
			Unlock(ctx, &mu)
		})
		taken := func() int {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.mu.taken
		}
		for taken() > 0 { // for ever, if it waited with its place
			runtime.Gosched()
		}
		other.Begin(t.Context(), time.Now())
		holder.due()
		if Yield(ctx); holder.in {
			t.Error("a turn waited for a place while it had a lock")
		}
		other.Leave()
		Unlock(ctx, &mu)
		done.Wait()
		holder.due()
		if Yield(ctx); !holder.in {
			t.Error("without its lock a turn takes none of the places")
		}
		holder.Leave()
	})
}
