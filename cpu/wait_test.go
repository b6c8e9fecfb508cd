package cpu_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// waiting starts a Reserve that may wait.
func waiting(ctx context.Context, h tier.Hot, f tier.Fill) <-chan error {
	done := make(chan error, 1)
	f.Patience = tier.Wait
	go func() {
		ref, _, err := h.Reserve(ctx, f)
		if err == nil {
			h.Abort([]tier.Ref{ref})
		}
		done <- err
	}()
	return done
}

// wantWaiting checks that nothing has come yet.
func wantWaiting(t *testing.T, done <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
}

// full makes a tier whose 4 pages are one chain, all leased by o.
func full(t *testing.T) (h tier.Hot, o ledger.Owner, c *key.Chain, refs []tier.Ref) {
	t.Helper()
	hot, _ := newTier(t, 4*page, ledger.Limits{})
	c, refs = store(t, hot, 1, 4, page), make([]tier.Ref, 4)
	o = hot.Ledger().NewOwner()
	if n, err := hot.Hold(o, ledger.Lease, tiertest.Keys(c, 0, 4), refs); n != 4 {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		hot.Ledger().CloseOwner(o)
		clear(t, hot, c)
	})
	return hot, o, c, refs
}

func TestWaiterWokenByRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, o, _, refs := full(t)
		var d drops
		done := waiting(t.Context(), h, fillOf(ledger.Daemon, tiertest.Chain(2, 1), 0, page, &d))
		wantWaiting(t, done)
		h.Release(o, ledger.Lease, refs[:2]) // the tail is still leased
		wantWaiting(t, done)
		h.Release(o, ledger.Lease, refs[2:])
		if err := <-done; err != nil || len(d) != 1 {
			t.Errorf("error %v after %d evictions; want one", err, len(d))
		}
	})
}

// A block that outlives its entry frees room only with its last reference.
func TestWaiterWokenByFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, o, c, refs := full(t)
		last := refs[3].Block.Retain()
		h.Release(o, ledger.Lease, refs)
		if err := h.Delete(t.Context(), tiertest.Keys(c, 0, 4)); err != nil {
			t.Fatal(err)
		}
		var d drops
		done := waiting(t.Context(), h, fillOf(ledger.Daemon, tiertest.Chain(2, 1), 0, 4*page, &d))
		wantWaiting(t, done)
		last.Release()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestWaiterWokenByBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newTier(t, mib, ledger.Limits{Lease: 2 * page})
		ref := reserve(t, h, ledger.Daemon, tiertest.Chain(1, 1), 0, 2*page)
		var d drops
		done := waiting(t.Context(), h, fillOf(ledger.Daemon, tiertest.Chain(2, 1), 0, page, &d))
		wantWaiting(t, done)
		h.Abort([]tier.Ref{ref})
		if err := <-done; err != nil {
			t.Error(err)
		}
		clear(t, h)
	})
}

func TestWaiterEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, o, _, refs := full(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var d drops
		err := <-waiting(ctx, h, fillOf(ledger.Daemon, tiertest.Chain(2, 1), 0, page, &d))
		if !errors.Is(err, tier.ErrNoSpace) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v; want no space, because of the deadline", err)
		}
		h.Release(o, ledger.Lease, refs)
	})
}

// A fill never waits for memory that only its own client can let go of, but it
// waits for other clients' memory, and for chunks that are being written.
func TestNobodyWaitsForTheOwnClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, o, c, refs := full(t)
		var d drops
		own := fillOf(o, tiertest.Chain(2, 1), 0, page, &d)
		brought := fillOf(ledger.Daemon, tiertest.Chain(3, 1), 0, page, &d)
		brought.For = o
		for _, f := range []tier.Fill{own, brought} {
			start := time.Now()
			if err := <-waiting(t.Context(), h, f); !errors.Is(err, tier.ErrOverBudget) || time.Since(start) > 0 {
				t.Errorf("filled by %d: %v, after %v; want over budget, at once", f.Owner, err, time.Since(start))
			}
		}
		writing := own
		writing.Writing = func() bool { return true }
		other := h.Ledger().NewOwner()
		var held [1]tier.Ref
		if n, err := h.Hold(other, ledger.Lease, tiertest.Keys(c, 3, 4), held[:]); n != 1 {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, f := range []tier.Fill{own, brought, writing} {
			if err := <-waiting(ctx, h, f); !errors.Is(err, tier.ErrNoSpace) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("filled by %d, and another holds something: %v; want no space, after a second", f.Owner, err)
			}
		}
		h.Release(other, ledger.Lease, held[:])
		h.Ledger().CloseOwner(other)
		h.Release(o, ledger.Lease, refs)
	})
}

// Two loads of one client that both wait do not wait for each other.
func TestLoadsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, o, _, refs := full(t)
		var d drops
		start := time.Now()
		var ends []<-chan error
		for seed := range uint64(3) {
			f := fillOf(ledger.Daemon, tiertest.Chain(5+seed, 1), 0, page, &d)
			f.For = o
			ends = append(ends, waiting(t.Context(), h, f))
		}
		for _, end := range ends {
			if err := <-end; !errors.Is(err, tier.ErrOverBudget) {
				t.Errorf("got %v; want over budget", err)
			}
		}
		if d := time.Since(start); d > 0 {
			t.Errorf("they waited %v", d)
		}
		h.Release(o, ledger.Lease, refs)
	})
}

// A release while a fill finds out whether it may wait counts.
func TestWaiterSeesWhatJustCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, o, _, refs := full(t)
		var d drops
		f := fillOf(o, tiertest.Chain(2, 1), 0, page, &d)
		f.Writing = func() bool { // a write has ended just now
			h.Release(o, ledger.Lease, refs)
			refs = nil
			return false
		}
		if err := <-waiting(t.Context(), h, f); err != nil {
			t.Error(err)
		}
	})
}

// TestMakeRoom: victims go until there is room, victims that are still to be written are
// waited for, and nothing is waited for that does not come.
func TestMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newTier(t, 4*page, ledger.Limits{})
		store(t, h, 1, 4, page)
		var demoting []tier.Victim
		var taken drops
		r := tier.Room{
			Bytes:    2 * page,
			Ahead:    func() int64 { return 3 * page },
			Demoting: func() int64 { return int64(len(demoting)) * page },
			Drop:     taken.take,
		}
		again := func() (bool, error) { return h.MakeRoom(t.Context(), r) }
		if waited, err := again(); waited || err != nil || len(taken) != 2 {
			t.Errorf("%d victims, waited %v, error %v; want the 2 that have no memory any more", len(taken), waited, err)
		}
		if waited, err := again(); waited || err != nil || len(taken) != 2 {
			t.Errorf("%d victims though there was room", len(taken))
		}
		clear(t, h, tiertest.Chain(1, 4))

		store(t, h, 2, 4, page)
		r.Drop = func(v tier.Victim) bool { demoting = append(demoting, v); return true }
		done := waitingRoom(t.Context(), h, r)
		wantWaiting(t, done)
		if len(demoting) != 3 {
			t.Fatalf("%d victims are to be written; want 3, as many as may go ahead", len(demoting))
		}
		free := func() {
			v := demoting[0]
			demoting = demoting[1:]
			v.Block.Release()
		}
		free()
		wantWaiting(t, done)
		free()
		if err := <-done; err != nil {
			t.Error(err)
		}
		free()

		store(t, h, 3, 3, page) // the first chunk of chain 2 is there
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := <-waitingRoom(ctx, h, r); !errors.Is(err, tier.ErrNoSpace) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v; want no space, because of the deadline", err)
		}
		for len(demoting) > 0 {
			free()
		}
		r.Bytes, r.Drop = 8*page, taken.take
		if waited, err := again(); waited || err != nil {
			t.Errorf("more than there is: waited %v, error %v", waited, err)
		}
		clear(t, h, tiertest.Chain(2, 4), tiertest.Chain(3, 3))
	})
}

// waitingRoom starts a MakeRoom.
func waitingRoom(ctx context.Context, h tier.Hot, r tier.Room) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := h.MakeRoom(ctx, r)
		done <- err
	}()
	return done
}
