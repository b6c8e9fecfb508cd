package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// try asks for room for all of a chain, as far as nothing is waited for, and gives it back.
// It checks that no time has passed.
func (r *rig) try(o ledger.Owner, c *key.Chain) (granted int, err error) {
	r.t.Helper()
	r.see(c)
	start, grants := time.Now(), make([]store.Grant, c.Len())
	n, err := r.Filler.Reserve(r.t.Context(), store.Reservation{Owner: o, Patience: tier.Try}, c, 0, repeat(size, c.Len()), grants)
	for _, g := range grants {
		if g.Ref.Valid() {
			granted++
		}
	}
	if granted > n || errors.Is(err, tier.ErrMustWait) && n > 0 {
		r.t.Errorf("%d chunks are granted, %d answered: %v", granted, n, err)
	}
	if took := time.Since(start); took > 0 {
		r.t.Errorf("a try takes %v", took)
	}
	r.giveBack(grants)
	return granted, err
}

func (r *rig) mustWait(o ledger.Owner, c *key.Chain) {
	r.t.Helper()
	if n, err := r.try(o, c); n != 0 || !errors.Is(err, tier.ErrMustWait) {
		r.t.Errorf("%d of %d chunks are granted: %v; want none, as the store must wait", n, c.Len(), err)
	}
}

// TestTryInTurn: a store that only tries has room that is free, and none that stores which
// wait for their turn are ahead for.
func TestTryInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newCrowded(t, tierfault.On(tierfault.Put, tierfault.Fault{Until: gate}))
		first, other := r.Leases.NewOwner(), r.Leases.NewOwner()
		defer r.Leases.CloseOwner(first)
		defer r.Leases.CloseOwner(other)
		rest := r.take(tiertest.Chain(2, 2)) // of the 4 that are free
		if n, err := r.try(other, tiertest.Chain(3, 2)); n != 2 || err != nil {
			t.Errorf("%d of 2 chunks are granted, for which room is free: %v", n, err)
		}
		refused := r.hot.Stats().Counters["refused"]
		r.mustWait(other, tiertest.Chain(4, 4)) // has victims written
		if n := r.hot.Stats().Counters["refused"] - refused; n > 0 {
			t.Errorf("%d chunks are counted as refused that may have room yet", n)
		}
		var waits sync.WaitGroup
		waits.Go(func() { r.store(first, tiertest.Chain(100, 4)) })
		synctest.Wait()
		for range 100 {
			r.mustWait(first, tiertest.Chain(5, 1))
			r.mustWait(other, tiertest.Chain(6, 1))
		}
		close(gate)
		waits.Wait()
		r.giveBack(rest)
		r.flush()
		r.wantNoTurns()
	})
}

// TestTryRoom: of a store that only tries nothing is granted where one that waits would
// begin to; what waiting does not help is told at once.
func TestTryRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{lone: true, capacity: 8*size + size/2}) // which 8 fill below the high watermark
		c := r.putChain(1, 8)
		mine, other := r.Leases.NewOwner(), r.Leases.NewOwner()
		defer r.Leases.CloseOwner(mine)
		defer r.Leases.CloseOwner(other)
		refs := make([]tier.Ref, 8)
		if n, err := r.Leases.Hold(mine, ledger.Lease, c, 0, 8, refs); n != 8 {
			t.Fatal(err)
		}
		longer := tiertest.Chain(1, 9) // 8 of which exist
		r.mustWait(other, longer)
		if n, err := r.try(mine, longer); n != 0 || !errors.Is(err, tier.ErrOverBudget) {
			t.Errorf("%d chunks are granted where only their own client could make room: %v", n, err)
		}
		waits := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			grants := make([]store.Grant, 2)
			_, err := r.Filler.Reserve(ctx, store.Reservation{Owner: other, Patience: tier.Wait}, tiertest.Chain(2, 2), 0, repeat(size, 2), grants)
			r.giveBack(grants)
			waits <- err
		}()
		synctest.Wait()
		r.Leases.Release(mine, ledger.Lease, refs)
		if err := <-waits; err != nil {
			t.Errorf("a store that waits beside tries: %v", err)
		}
		if n, err := r.try(other, tiertest.Chain(3, 4)); n != 4 || err != nil {
			t.Errorf("%d of 4 chunks are granted for which others can go: %v", n, err)
		}
	})
}

// TestTryBehindWriter: a store that only tries waits for no writer that is behind.
func TestTryBehindWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(t, options{
			disk: tiertest.NewMemory("disk", 64*mib), hook: tierfault.On(tierfault.Put, tierfault.Fault{Until: gate}),
			mode: through, workers: 1,
		})
		c := tiertest.Chain(9, 2)
		for seed := uint64(1); ; seed++ {
			n, err := r.try(ledger.Daemon, c)
			if errors.Is(err, tier.ErrMustWait) {
				break
			}
			if n != 2 || err != nil || seed > 60 {
				t.Fatalf("%d of 2 chunks are granted beside %d that are not written: %v", n, seed-1, err)
			}
			r.putChain(100+seed, 1)
		}
		close(gate)
		r.flush()
		if n, err := r.try(ledger.Daemon, c); n != 2 || err != nil {
			t.Errorf("once all is written %d of 2 chunks are granted: %v", n, err)
		}
	})
}
