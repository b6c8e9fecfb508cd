package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// newCrowded is a rig whose DRAM of 64 chunks is full of chunks that no tier has: a
// victim leaves DRAM when the disk, which hook slows down, has been given it.
func newCrowded(t *testing.T, hook tierfault.Hook) *rig {
	t.Helper()
	r := newRig(t, options{disk: tiertest.NewMemory("disk", 64*mib), hook: hook, mode: held, workers: 4})
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
		all.Go(func() { r.store(ledger.Daemon, tiertest.Chain(seed+uint64(i), n)) })
	}
	all.Wait()
	return time.Since(start)
}

// store waits for room for all of a new chain, and stores it.
func (r *rig) store(o ledger.Owner, c *key.Chain) {
	r.t.Helper()
	r.see(c)
	grants := make([]store.Grant, c.Len())
	got, err := r.Filler.Reserve(r.t.Context(), store.Reservation{Owner: o, Patience: tier.Wait}, c, 0, repeat(size, c.Len()), grants)
	if got != c.Len() || err != nil {
		r.t.Errorf("%d of %d chunks are granted: %v", got, c.Len(), err)
	}
	commit(r.Store, c, 0, fill(c, 0, grants[:got]))
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

// TestTurnsOfLoads: the room that is kept free for stores becomes less while chunks come up
// and none is stored.
func TestTurnsOfLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCrowded(t, tierfault.On(tierfault.Put, tierfault.Fault{Delay: time.Second}))
		r.wave(4, 4, 100)
		time.Sleep(time.Minute)
		if free := r.arena.Stats().FreeBytes; free < 12*size {
			t.Fatalf("%d chunks of room are kept free for stores, want some 16", free/size)
		}
		first := tiertest.Chain(1, 60)
		for i := range 600 { // most have left DRAM when their turn comes
			if err := r.load(first, i%60); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		if free := r.arena.Stats().FreeBytes; free > 8*size {
			t.Errorf("%d chunks of room are still kept free", free/size)
		}
	})
}

// TestTurnsOfClients: a client with many stores that wait does not keep another client
// waiting behind all of them.
func TestTurnsOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCrowded(t, tierfault.On(tierfault.Put, tierfault.Fault{Delay: time.Second}))
		many, one := r.Leases.NewOwner(), r.Leases.NewOwner()
		defer r.Leases.CloseOwner(many)
		defer r.Leases.CloseOwner(one)
		var all sync.WaitGroup
		for i := range uint64(20) {
			all.Go(func() { r.store(many, tiertest.Chain(100+i, 4)) })
		}
		synctest.Wait()
		start := time.Now()
		r.store(one, tiertest.Chain(200, 4))
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("it waits for %v, and all for some 20 s", took)
		}
		all.Wait()
		if took := time.Since(start); took < 12*time.Second {
			t.Errorf("all wait for %v only", took)
		}
		r.flush()
		r.wantNoTurns()
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
				n, err := r.Filler.Reserve(ctx, store.Reservation{Owner: ledger.Daemon, Patience: tier.Wait}, c, 0, repeat(size, 8), make([]store.Grant, 8))
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
		r.giveBack(rest)
		r.flush()
		r.wantNoTurns()
	})
}

// TestTurnTakesWhatIsThere: a store that is out of time before there is room for all that
// it asks for gets what there is room for. One that was cancelled gets nothing.
func TestTurnTakesWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newCrowded(t, tierfault.On(tierfault.Put, tierfault.Fault{Until: gate}))
		rest := r.take(tiertest.Chain(2, 2)) // of the 4 that are free
		cancelled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		late, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		for want, ctx := range map[int]context.Context{0: cancelled, 2: late} {
			c, grants := tiertest.Chain(100+uint64(want), 4), make([]store.Grant, 4)
			r.see(c)
			n, err := r.Filler.Reserve(ctx, store.Reservation{Owner: ledger.Daemon, Patience: tier.Wait}, c, 0, repeat(size, 4), grants)
			if n != want || !errors.Is(err, tier.ErrNoSpace) {
				t.Errorf("%d of 4 chunks are granted where 2 have room, want %d: %v", n, want, err)
			}
			r.giveBack(grants[:n])
		}
		r.giveBack(rest)
		close(gate)
		r.flush()
		r.wantNoTurns()
	})
}

// TestTurnless: a store that needs no room, or is to evict nothing, waits for no turn.
func TestTurnless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newCrowded(t, tierfault.On(tierfault.Put, tierfault.Fault{Until: gate}))
		rest := r.take(tiertest.Chain(2, 2)) // of the 4 that are free
		var waits sync.WaitGroup
		waits.Go(func() { r.wave(1, 4, 100) })
		synctest.Wait()
		before := r.hot.Stats().Evictions
		start, stored := time.Now(), tiertest.Chain(1, 60)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n, err := r.Filler.Reserve(ctx, store.Reservation{Owner: ledger.Daemon, Patience: tier.Wait}, stored, 0, repeat(size, 60), make([]store.Grant, 60))
		if n != 60 || err != nil {
			t.Errorf("%d of 60 chunks are answered, which are all there: %v", n, err)
		}
		c, grants := tiertest.Chain(3, 2), make([]store.Grant, 2)
		r.see(c)
		n, err = r.Filler.Reserve(ctx, store.Reservation{Patience: tier.Wait, Free: true}, c, 0, repeat(size, 2), grants)
		if n != 2 || err != nil {
			t.Errorf("%d of 2 chunks are granted, for which room is free: %v", n, err)
		}
		if took, n := time.Since(start), r.hot.Stats().Evictions-before; took > 0 || n > 0 {
			t.Errorf("they took %v, and %d chunks went", took, n)
		}
		r.giveBack(rest, grants)
		close(gate)
		waits.Wait()
	})
}

// TestTurnRoom: the room that is made is what chunks take in DRAM, which is more than
// they have.
func TestTurnRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCrowded(t, tierfault.On(tierfault.Put, tierfault.Fault{Delay: time.Second}))
		rest := r.take(tiertest.Chain(2, 4)) // all that is free
		c, grants := tiertest.Chain(3, 40), make([]store.Grant, 40)
		r.see(c)
		n, err := r.Filler.Reserve(t.Context(), store.Reservation{Owner: ledger.Daemon, Patience: tier.Wait}, c, 0, repeat(100, 40), grants)
		if n != 40 || err != nil {
			t.Errorf("%d of 40 small chunks are granted: %v", n, err)
		}
		r.giveBack(rest, grants[:n])
	})
}

// TestTurnLooksAgain: a chunk that goes while a store waits is granted.
func TestTurnLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCrowded(t, tierfault.On(tierfault.Put, tierfault.Fault{Delay: time.Second}))
		c, grants := tiertest.Chain(3, 4), make([]store.Grant, 4)
		r.put(c, 0, 1, size)
		rest := r.take(tiertest.Chain(2, 3)) // all that is free
		r.see(c)
		n, waits := 0, sync.WaitGroup{}
		waits.Go(func() {
			// For one chunk more than it came for there may be no room.
			n, _ = r.Filler.Reserve(t.Context(), store.Reservation{Owner: ledger.Daemon, Patience: tier.Wait}, c, 0, repeat(size, 4), grants)
		})
		synctest.Wait()
		if known, err := r.Remover.Delete(t.Context(), []key.Key{c.Key(0)}); known != 1 || err != nil {
			t.Errorf("%d chunks are deleted: %v", known, err)
		}
		waits.Wait()
		if n < 3 || grants[0].Status != store.Granted {
			t.Errorf("%d of 4 chunks are answered, the one that was deleted with %v", n, grants[0].Status)
		}
		r.giveBack(rest, grants[:n])
	})
}

// TestTurnHang: a disk that hangs keeps stores waiting until it is switched off, and no
// longer, and leaves the counts of turns true.
// The waves are of a quarter of DRAM: of more, which come at one moment, not all are sure
// to be granted all.
func TestTurnHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tierfault.Switch{Fault: tierfault.Fault{Delay: 10 * time.Second, Err: tier.ErrHung}}
		r := newRig(t, options{
			hook: f.Hook, mode: held, workers: 4,
			breaker: &tier.BreakerOptions{Log: zerolog.Nop()},
		})
		r.putChain(1, 60)
		f.Set(true)
		if took := r.wave(4, 4, 100); took > 11*time.Second {
			t.Errorf("stores wait for %v", took)
		}
		if took := r.wave(4, 4, 200); took > 0 {
			t.Errorf("once the disk is off stores wait for %v", took)
		}
		f.Set(false)
		time.Sleep(time.Minute)
		r.wave(4, 4, 300)
		r.flush()
		r.wantNoTurns()
	})
}

// take reserves all of a chain, which has room.
func (r *rig) take(c *key.Chain) []store.Grant {
	r.t.Helper()
	grants, err := r.reserve(ledger.Daemon, c, 0, c.Len(), size)
	if err != nil {
		r.t.Fatal(err)
	}
	return grants
}

// wantNoTurns checks that nothing is counted of stores that have ended.
func (r *rig) wantNoTurns() {
	r.t.Helper()
	if !r.Writers.Idle() {
		r.t.Error("bytes are still wanted, have entered or are demoting")
	}
}

// giveBack ends reservations.
func (r *rig) giveBack(each ...[]store.Grant) {
	for _, grants := range each {
		for _, g := range grants {
			if g.Ref.Valid() {
				r.Filler.Abort([]tier.Ref{g.Ref})
			}
		}
	}
}

// TestTurnOfOwn: a store for which only its own client could make room is told so, and
// keeps no other store waiting.
func TestTurnOfOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCrowded(t, nil)
		c := tiertest.Chain(1, 60)
		o := r.Leases.NewOwner()
		defer r.Leases.CloseOwner(o)
		refs := make([]tier.Ref, 60)
		if n, err := r.Leases.Hold(o, ledger.Lease, c, 0, 60, refs); n != 60 {
			t.Fatal(err)
		}
		for i := range uint64(3) {
			grants := make([]store.Grant, 8)
			n, err := r.Filler.Reserve(t.Context(), store.Reservation{Owner: o, Patience: tier.Wait}, tiertest.Chain(2+i, 8), 0, repeat(size, 8), grants)
			if n != 4 || !errors.Is(err, tier.ErrNoSpace) {
				t.Errorf("%d chunks are granted where 4 have room: %v", n, err)
			}
			for _, g := range grants[:n] {
				r.Filler.Abort([]tier.Ref{g.Ref})
			}
		}
		r.Leases.Release(o, ledger.Lease, refs)
		r.wave(4, 4, 200)
	})
}
