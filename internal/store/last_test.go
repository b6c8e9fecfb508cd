package store_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// The last flush writes the most used chunks first, and none before the chunks
// that it stands on; the chunks that its time was too short for are left, and
// counted.
func TestFlushLastWritesTheMostValuableFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var puts []key.Key
		slow := func(call tierfault.Call) tierfault.Fault {
			if call.Op != tierfault.Put {
				return tierfault.Fault{}
			}
			mu.Lock()
			defer mu.Unlock()
			puts = append(puts, call.Keys[0])
			return tierfault.Fault{Delay: time.Second}
		}
		r := newRig(t, options{hook: slow, mode: held, workers: 1})
		old, hot, tail, young := r.putChain(1, 3), r.putChain(2, 3), r.putChain(3, 3), r.putChain(4, 3)
		r.Leases.Touch(hot, 0, 3)
		r.Leases.Touch(hot, 0, 1)
		r.Leases.Touch(tail, 1, 3) // worth no more than what they stand on
		want := []key.Key{
			hot.Key(0), hot.Key(1), hot.Key(2),
			young.Key(0), tail.Key(0), old.Key(0),
			young.Key(1), tail.Key(1), old.Key(1),
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(len(want))*time.Second+time.Second/2)
		defer cancel()
		left := r.Writers.FlushLast(ctx)
		lacks := uint64(4*3 - len(want))
		if got := left[tier.Disk]; got.Volume != (writeback.Volume{Chunks: lacks, Bytes: lacks * size}) || !errors.Is(got.Err, context.DeadlineExceeded) {
			t.Errorf("it says that %+v is left; want %d chunks", left, lacks)
		}
		mu.Lock()
		got := puts[:min(len(puts), len(want))]
		mu.Unlock()
		if !slices.Equal(got, want) {
			t.Errorf("written in the order\n%x, want\n%x", got, want)
		}
		if left := r.Writers.FlushLast(t.Context()); len(left) > 0 {
			t.Errorf("with time enough it leaves %+v", left)
		}
		for _, c := range []*key.Chain{old, hot, tail, young} {
			for i := range 3 {
				r.wantOnDisk(c, i)
			}
		}
	})
}

// A tier that hangs keeps the others from nothing.
func TestFlushLastOfTwoTiers(t *testing.T) {
	for _, hangs := range []tier.Place{tier.Disk, tier.Remote} {
		synctest.Test(t, func(t *testing.T) {
			hung := func(p tier.Place) tierfault.Hook {
				return func(c tierfault.Call) tierfault.Fault {
					return tierfault.Fault{Hang: p == hangs && c.Op == tierfault.Put}
				}
			}
			remote := tiertest.NewMemory("remote", 64*mib)
			r := newRig(t, options{
				hook: hung(tier.Disk), remote: struct{ tier.Tier }{tierfault.Wrap(remote, hung(tier.Remote))},
				mode: held,
			})
			c := r.putChain(1, 5)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			left := r.Writers.FlushLast(ctx)
			if v := left[hangs]; len(left) != 1 || v.Volume != (writeback.Volume{Chunks: 5, Bytes: 5 * size}) || v.Err == nil {
				t.Errorf("%s hangs: %+v is left", hangs, left)
			}
			if hangs == tier.Remote {
				r.wantOnDisk(c, 4)
			} else if have := make([]bool, 1); remote.Contains(t.Context(), []key.Key{c.Key(4)}, have) != nil || !have[0] {
				t.Error("the remote tier has not got what the disk did not take")
			}
		})
	}
}

// The chunks that a tier was off for are written too, once it works again.
func TestFlushLastWritesWhatWasMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		broken := true
		r := newRig(t, options{breaker: &tier.BreakerOptions{Failures: 1, Pause: time.Hour, PauseMax: time.Hour}, hook: func(c tierfault.Call) tierfault.Fault {
			mu.Lock()
			defer mu.Unlock()
			if broken && c.Op == tierfault.Put {
				return tierfault.Fault{Err: errIO}
			}
			return tierfault.Fault{}
		}})
		c := r.putChain(1, 4)
		synctest.Wait()
		if left := r.Writers.FlushLast(t.Context()); left[tier.Disk].Chunks != 4 {
			t.Errorf("of 4 chunks that a broken disk lacks it says %+v", left)
		}
		mu.Lock()
		broken = false
		mu.Unlock()
		if left := r.Writers.FlushLast(t.Context()); len(left) > 0 {
			t.Errorf("left: %+v", left)
		}
		for i := range 4 {
			r.wantOnDisk(c, i)
		}
	})
}
