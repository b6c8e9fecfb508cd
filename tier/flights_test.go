package tier_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/tier"
)

// ref is a value with counted references, as blocks have.
type ref struct{ refs *atomic.Int32 }

func newRef() ref {
	r := ref{new(atomic.Int32)}
	r.refs.Store(1)
	return r
}

func (r ref) clone() ref {
	if r.refs.Add(1) < 2 {
		panic("clone of a released value")
	}
	return r
}

func (r ref) release() {
	if r.refs.Add(-1) < 0 {
		panic("released twice")
	}
}

var errTry = errors.New("try again")

func newGroup() *tier.Flights[string, ref] {
	return &tier.Flights[string, ref]{
		Clone:   ref.clone,
		Discard: ref.release,
	}
}

// outcome is what one Do returned.
type outcome struct {
	value ref
	err   error
}

// do calls Do in a goroutine and returns once every goroutine is blocked, so
// that calls arrive in the order written.
func do(ctx context.Context, g *tier.Flights[string, ref], fetch tier.Fetch[ref]) <-chan outcome {
	out := make(chan outcome, 1)
	go func() {
		v, err := g.Do(ctx, "k", fetch)
		out <- outcome{v, err}
	}()
	synctest.Wait()
	return out
}

// fetchAfter returns a fetch that takes a second of fake time, ends early with its
// context, and counts itself.
func fetchAfter(runs *int, v ref, err error) tier.Fetch[ref] {
	return func(ctx context.Context) (ref, error) {
		*runs++
		select {
		case <-time.After(time.Second):
			return v, err
		case <-ctx.Done():
			return ref{}, ctx.Err()
		}
	}
}

func never(t *testing.T) tier.Fetch[ref] {
	return func(context.Context) (ref, error) {
		t.Error("a fetch ran that should not")
		return ref{}, errTry
	}
}

func wantErr(t *testing.T, who string, out <-chan outcome, want error) {
	t.Helper()
	if o := <-out; !errors.Is(o.err, want) {
		t.Errorf("%s: error %v, want %v", who, o.err, want)
	}
}

func wantValue(t *testing.T, who string, out <-chan outcome, v ref) {
	t.Helper()
	if o := <-out; o.err != nil || o.value != v {
		t.Errorf("%s: got %+v, want the value", who, o)
	}
}

func wantRefs(t *testing.T, v ref, want int32) {
	t.Helper()
	if n := v.refs.Load(); n != want {
		t.Errorf("%d references, want %d", n, want)
	}
}

func TestOneFetchForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, v, runs := newGroup(), newRef(), 0
		leader := do(t.Context(), g, fetchAfter(&runs, v, nil))
		second := do(t.Context(), g, never(t))
		third := do(t.Context(), g, never(t))
		wantValue(t, "leader", leader, v)
		wantValue(t, "second", second, v)
		wantValue(t, "third", third, v)
		wantRefs(t, v, 3)

		// Nothing is remembered: the next caller fetches again.
		w := newRef()
		wantValue(t, "next", do(t.Context(), g, fetchAfter(&runs, w, nil)), w)
		if runs != 2 {
			t.Errorf("%d fetches, want 2", runs)
		}
	})
}

func TestKeysDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup()
		block := make(chan struct{})
		slow := do(t.Context(), g, func(context.Context) (ref, error) { <-block; return newRef(), nil })
		v := newRef()
		got, err := g.Do(t.Context(), "other", func(context.Context) (ref, error) { return v, nil })
		if got != v || err != nil {
			t.Errorf("got %v, %v", got, err)
		}
		close(block)
		<-slow
	})
}

func TestWaiterLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, v, runs := newGroup(), newRef(), 0
		leader := do(t.Context(), g, fetchAfter(&runs, v, nil))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		wantErr(t, "waiter", do(ctx, g, never(t)), context.DeadlineExceeded)
		wantValue(t, "leader", leader, v)
		wantRefs(t, v, 1)
	})
}

// TestLeaderLeaves: the work goes on for the others, and the leader's values
// stay in its context.
func TestLeaderLeaves(t *testing.T) {
	type keyType struct{}
	synctest.Test(t, func(t *testing.T) {
		g, v := newGroup(), newRef()
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), keyType{}, "leader's"))
		leader := do(ctx, g, func(ctx context.Context) (ref, error) {
			time.Sleep(time.Second)
			if ctx.Err() != nil || ctx.Value(keyType{}) != "leader's" {
				t.Errorf("the context ended (%v) or lost its value", ctx.Err())
			}
			return v, nil
		})
		waiter := do(t.Context(), g, never(t))
		cancel()
		wantErr(t, "leader", leader, context.Canceled)
		wantValue(t, "waiter", waiter, v)
		wantRefs(t, v, 1)
	})
}

func TestAllLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, v := newGroup(), newRef()
		ctx, cancel := context.WithCancel(t.Context())
		stubborn := func(ctx context.Context) (ref, error) {
			<-ctx.Done() // the last waiter has left: its value comes too late
			return v, nil
		}
		leader, waiter := do(ctx, g, stubborn), do(ctx, g, never(t))
		cancel()
		wantErr(t, "leader", leader, context.Canceled)
		wantErr(t, "waiter", waiter, context.Canceled)
		g.Wait()
		wantRefs(t, v, 0)
	})
}

func TestEndedContextFetchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := newGroup().Do(ctx, "k", never(t)); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}

func TestFailingLeaderPassesItsTurnOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, v, failed, done := newGroup(), newRef(), 0, 0
		first := do(t.Context(), g, fetchAfter(&failed, ref{}, errTry))
		second := do(t.Context(), g, fetchAfter(&failed, ref{}, errTry))
		third := do(t.Context(), g, fetchAfter(&done, v, nil))
		fourth := do(t.Context(), g, never(t))
		wantErr(t, "first", first, errTry)
		wantErr(t, "second", second, errTry)
		wantValue(t, "third", third, v)
		wantValue(t, "fourth", fourth, v)
		wantRefs(t, v, 2)
		if failed != 2 || done != 1 {
			t.Errorf("%d failed and %d good fetches, want 2 and 1", failed, done)
		}
	})
}

// TestLeaderLeftAndFailed: no waiter gets the error of a leader that has left.
func TestLeaderLeftAndFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, v, runs := newGroup(), newRef(), 0
		ctx, cancel := context.WithCancel(t.Context())
		leader := do(ctx, g, fetchAfter(&runs, ref{}, errTry))
		waiter := do(t.Context(), g, fetchAfter(&runs, v, nil))
		cancel()
		wantErr(t, "leader", leader, context.Canceled)
		wantValue(t, "waiter", waiter, v)
	})
}

// TestNewcomerAfterAllLeft: there is never a second fetch beside an abandoned
// one, and what ended it is not the newcomer's error.
func TestNewcomerAfterAllLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, v, runs := newGroup(), newRef(), 0
		ctx, cancel := context.WithCancel(t.Context())
		ended := false
		leader := do(ctx, g, func(ctx context.Context) (ref, error) {
			<-ctx.Done()
			time.Sleep(time.Second) // on its way out
			ended = true
			return ref{}, errTry
		})
		cancel()
		wantErr(t, "leader", leader, context.Canceled)
		newcomer := do(t.Context(), g, func(ctx context.Context) (ref, error) {
			if !ended {
				t.Error("two fetches at a time")
			}
			return fetchAfter(&runs, v, nil)(ctx)
		})
		wantValue(t, "newcomer", newcomer, v)
	})
}

func TestZeroGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g tier.Flights[int, string]
		slow := func(context.Context) (string, error) { time.Sleep(time.Second); return "v", nil }
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if v, err := g.Do(t.Context(), 1, slow); v != "v" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
			})
		}
		wg.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := g.Do(ctx, 1, slow); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		g.Wait()
	})
}
