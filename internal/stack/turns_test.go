package stack_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// newCrowded is a rig whose DRAM of 64 chunks is full of chunks that no tier has: a
// victim leaves DRAM when the disk, which hook slows down, has been given it.
func newCrowded(t *testing.T, hook tierfault.Hook) *rig {
	t.Helper()
	r := newRig(t, options{disk: tiertest.NewMemory("disk", 64*mib), hook: hook, write: stack.WriteOptions{Mode: stack.WriteBack, Workers: 4}})
	r.putChain(1, 60)
	synctest.Wait()
	return r
}

// wave has clients store n chunks each at the same time, each with a wait for room, and
// returns how long that took. Each must be granted all in one answer.
func (r *rig) wave(clients, n int, seed uint64) time.Duration {
	r.t.Helper()
	start := time.Now()
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			c := tiertest.Chain(seed+uint64(i), n)
			r.see(c)
			grants := make([]stack.Grant, n)
			got, err := r.Reserve(r.t.Context(), ledger.Daemon, c, 0, repeat(size, n), grants, true)
			if got != n || err != nil {
				r.t.Errorf("client %d: %d of %d chunks are granted: %v", i, got, n, err)
			}
			r.Commit(c, 0, fill(c, 0, grants[:got]))
		})
	}
	all.Wait()
	return time.Since(start)
}

// TestTurns: stores that wait until victims are written are granted all that they ask for,
// one store after the other, and the next find room that was made ahead of them.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCrowded(t, tierfault.On(tierfault.Put, tierfault.Fault{Delay: time.Second}))
		if took := r.wave(4, 4, 100); took == 0 || took > 6*time.Second {
			t.Errorf("16 chunks take %v, 4 are written a second", took)
		}
		time.Sleep(time.Minute)
		if took := r.wave(2, 4, 200); took > 0 {
			t.Errorf("the next stores wait for %v", took)
		}
		for i := range uint64(40) { // the room made ahead becomes less
			r.wave(1, 4, 300+i)
			time.Sleep(time.Minute)
		}
		if free := r.arena.Stats().FreeBytes; free > 8*size {
			t.Errorf("%d chunks of room are kept free though no store has waited for long", free/size)
		}
	})
}

// TestTurnEnds: a store whose time is over leaves its turn, and its place in the line,
// to others.
func TestTurnEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newCrowded(t, tierfault.On(tierfault.Put, tierfault.Fault{Until: gate}))
		rest, err := r.reserve(ledger.Daemon, tiertest.Chain(2, 4), 0, 4, size) // all that is free
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				c := tiertest.Chain(100+uint64(i), 8)
				n, err := r.Reserve(ctx, ledger.Daemon, c, 0, repeat(size, 8), make([]stack.Grant, 8), true)
				if n != 0 || !errors.Is(err, tier.ErrNoSpace) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%d chunks are granted: %v", n, err)
				}
			})
		}
		all.Wait()
		time.AfterFunc(time.Second, func() { close(gate) })
		if took := r.wave(4, 4, 200); took != time.Second {
			t.Errorf("once the disk writes again stores take %v", took)
		}
		for _, g := range rest {
			r.Abort([]tier.Ref{g.Ref})
		}
	})
}

// TestTurnOfOwn: a store for which only its own client could make room is told so, and
// keeps no other store waiting.
func TestTurnOfOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCrowded(t, nil)
		c := tiertest.Chain(1, 60)
		o := r.NewOwner()
		defer r.CloseOwner(o)
		refs := make([]tier.Ref, 60)
		if n, err := r.Hold(o, ledger.Lease, c, 0, 60, refs); n != 60 {
			t.Fatal(err)
		}
		for i := range uint64(3) {
			grants := make([]stack.Grant, 8)
			n, err := r.Reserve(t.Context(), o, tiertest.Chain(2+i, 8), 0, repeat(size, 8), grants, true)
			if n != 4 || !errors.Is(err, tier.ErrNoSpace) {
				t.Errorf("%d chunks are granted where 4 have room: %v", n, err)
			}
			for _, g := range grants[:n] {
				r.Abort([]tier.Ref{g.Ref})
			}
		}
		r.Release(o, ledger.Lease, refs)
		r.wave(4, 4, 200)
	})
}
