package store_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// scrubbed is a disk whose scrub takes an hour.
type scrubbed struct {
	*tiertest.Memory
	rate  *atomic.Int64 // of the pass under way; 0 = none
	begun *atomic.Int64
}

func (s scrubbed) Plans() bool { return false }
func (s scrubbed) Scrub(ctx context.Context, rate int64, _ func(key.Key)) (tier.Scrubbed, error) {
	s.begun.Add(1)
	s.rate.Store(rate)
	defer s.rate.Store(0)
	select {
	case <-ctx.Done():
	case <-time.After(time.Hour):
	}
	return tier.Scrubbed{}, ctx.Err()
}

// A scrub begins, goes on at another rate and ends as it is set, without a new
// start.
func TestSetScrubRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scrubbed{tiertest.NewMemory("disk", 64*mib), new(atomic.Int64), new(atomic.Int64)}
		r := newRig(t, options{disk: s.Memory, planner: s})
		is := func(rate int64) {
			t.Helper()
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if got := s.rate.Load(); got != rate {
				t.Errorf("it reads %d bytes a second, want %d", got, rate)
			}
		}
		is(0)
		r.Store.Operator.Set(store.Settings{ScrubBytesPerSecond: 7})
		is(7)
		r.Store.Operator.Set(store.Settings{ScrubBytesPerSecond: 9})
		is(9)
		begun := s.begun.Load()
		r.Store.Operator.Set(store.Settings{ScrubBytesPerSecond: 9, VerifyHits: 1}) // which is no change
		is(9)
		if n := s.begun.Load(); n != begun {
			t.Errorf("%d passes were begun, want the %d before", n, begun)
		}
		r.Store.Operator.Set(store.Settings{})
		is(0)
	})
}

// Hits are verified from when that is set.
func TestSetVerifyHits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.putChain(1, 4)
		r.flush()
		r.flip(c, 2)
		hold := func() int {
			refs := make([]tier.Ref, 4)
			n, err := r.Leases.Hold(ledger.Daemon, ledger.Lease, c, 0, 4, refs)
			if err != nil {
				t.Fatal(err)
			}
			r.Leases.Release(ledger.Daemon, ledger.Lease, refs[:n])
			return n
		}
		if n := hold(); n != 4 {
			t.Fatalf("held %d, want all 4: nothing is verified", n)
		}
		r.Store.Operator.Set(store.Settings{VerifyHits: 1})
		if n := hold(); n != 2 {
			t.Errorf("held %d, want the 2 before the wrong one", n)
		}
	})
}
