package store_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// usual are the daemon's limits over the rig's DRAM.
var usual = ledger.Limits{Lease: 4 * mib * 2 / 5, Pin: 4 * mib / 5, Load: 4 * mib / 5, Unwritten: 4 * mib / 5, Total: 4 * mib * 4 / 5}

const piece = 20 // chunks, of the 64 that DRAM has room for

// putLong stores chunks of c piece by piece, as one client.
func (r *rig) putLong(ctx context.Context, o ledger.Owner, c *key.Chain) error {
	r.see(c)
	for from := 0; from < c.Len(); from += piece {
		for next, end := from, min(from+piece, c.Len()); next < end; {
			grants := make([]store.Grant, end-next)
			n, err := r.Filler.Reserve(ctx, store.Reservation{Owner: o, Patience: tier.Wait}, c, next, repeat(size, end-next), grants)
			if n == 0 {
				return err
			}
			commit(r.Store, c, next, fill(c, next, grants[:n]))
			next += n
		}
	}
	return nil
}

// readLong reads c piece by piece, as one client that holds a piece at a time.
func (r *rig) readLong(ctx context.Context, o ledger.Owner, c *key.Chain) error {
	for from := 0; from < c.Len(); from += piece {
		var refs []tier.Ref
		for i := from; i < min(from+piece, c.Len()); i++ {
			ref, _, err := r.Loader.Load(ctx, store.Requester{Owner: o}, c, i, tier.All)
			if err == nil {
				refs = append(refs, ref)
				err = tiertest.CheckPayload(c.Key(i), ref.Block.Bytes())
			}
			if err != nil {
				r.Leases.Release(o, ledger.Lease, refs)
				return err
			}
		}
		r.Leases.Release(o, ledger.Lease, refs)
	}
	return nil
}

// A prompt of 20 times DRAM is stored and read back through one client, which
// waits for the disk and for nothing else.
func TestPromptLongerThanDRAM(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { storeAndReadLong(t, mode) })
		})
	}
}

func storeAndReadLong(t *testing.T, mode writeback.When) {
	r := newRig(t, options{limits: usual, mode: mode, disk: tiertest.NewMemory("disk", 1<<40), hook: func(c tierfault.Call) tierfault.Fault {
		if c.Op == tierfault.Recover {
			return tierfault.Fault{} // time stands still while the rig waits for it
		}
		return tierfault.Fault{Delay: time.Millisecond}
	}})
	o := r.Leases.NewOwner()
	defer r.Leases.CloseOwner(o)
	c := tiertest.Chain(1, 10*64)
	start := time.Now()
	if err := r.putLong(t.Context(), o, c); err != nil {
		t.Fatal(err)
	}
	r.flush()
	if m := r.match(c); m.Chunks != c.Len() || r.hot.Has(c.Key(0)) {
		t.Logf("%+v", r.Writers.Written())
		t.Errorf("%d of %d chunks are stored; the first is in DRAM: %t", m.Chunks, c.Len(), r.hot.Has(c.Key(0)))
	}
	for range 2 {
		if err := r.readLong(t.Context(), o, c); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took > 3*time.Second { // 640 writes of a millisecond and as many reads, one by one
		t.Errorf("took %v", took)
	}
	synctest.Wait() // what has left DRAM is handed over
	r.checkIndex()
}

// While the disk is off a chunk that it has stays in DRAM as long as others stand
// on it; when the disk is back such chunks leave again.
func TestNothingLeavesForATierThatIsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var off atomic.Bool
		r := newRig(t, options{
			breaker: &tier.BreakerOptions{Failures: 1, Pause: time.Second, PauseMax: time.Second},
			hook: func(tierfault.Call) tierfault.Fault {
				if off.Load() {
					return tierfault.Fault{Err: errIO}
				}
				return tierfault.Fault{}
			},
		})
		c := tiertest.Chain(1, 10)
		if err := r.putLong(t.Context(), ledger.Daemon, c); err != nil {
			t.Fatal(err)
		}
		r.flush()
		head := tiertest.Chain(2, 40)
		if err := r.putLong(t.Context(), ledger.Daemon, head); err != nil {
			t.Fatal(err)
		}
		r.flush()
		off.Store(true)
		r.putChain(3, 1) // fails to be written
		r.flush()
		var tip [1]tier.Ref
		if n, err := r.Leases.Hold(ledger.Daemon, ledger.Lease, head, 39, 40, tip[:]); n != 1 {
			t.Fatal(err)
		}
		r.evict()
		for i := range 40 {
			if !r.hot.Has(head.Key(i)) {
				t.Fatalf("chunk %d has left DRAM while the disk is off", i)
			}
		}
		off.Store(false)
		time.Sleep(2 * time.Second)
		r.flush() // probes
		r.evict()
		for i := range 39 {
			if r.hot.Has(head.Key(i)) {
				t.Fatalf("chunk %d stays in DRAM though the disk has it", i)
			}
		}
		r.Leases.Release(ledger.Daemon, ledger.Lease, tip[:])
	})
}
