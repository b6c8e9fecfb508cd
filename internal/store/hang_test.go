package store_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

var errIO = errors.New("input/output error")

// A store over a disk that hangs for a minute under full load goes on: no
// commit waits, victims are dropped and counted, and the disk comes back.
func TestStoreOverAHangingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tierfault.Switch{Fault: tierfault.Fault{Delay: 10 * time.Second, Err: tier.ErrHung}}
		r := newRig(t, options{hook: f.Hook, limits: ledger.Limits{Unwritten: mib}, breaker: &tier.BreakerOptions{Log: zerolog.Nop()}})
		f.Set(true)
		start := time.Now()
		seed := uint64(100)
		put := func() {
			r.putChain(seed, 4)
			seed++
		}
		for time.Since(start) < time.Minute {
			before := time.Now()
			put()
			if took := time.Since(before); took > 0 {
				t.Fatalf("a put waited %v", took)
			}
			time.Sleep(50 * time.Millisecond)
		}
		w := r.Writers.Written()[tier.Disk]
		if w.Dropped[explain.WhileOff].Chunks == 0 {
			t.Errorf("dropped %v; want some because the tier was off", w.Dropped)
		}
		if m, err := r.Lookups.Match(t.Context(), tiertest.Chain(100, 4), tier.All); err != nil || m.Chunks != 0 {
			t.Errorf("%d chunks of a chain that was dropped are matched: %v", m.Chunks, err)
		}
		f.Set(false)
		time.Sleep(time.Minute)
		for range 20 {
			put()
			time.Sleep(time.Second)
		}
		if after := r.Writers.Written()[tier.Disk]; after.Written.Chunks < w.Written.Chunks+60 {
			t.Errorf("%d chunks were written before, %d after the disk came back", w.Written.Chunks, after.Written.Chunks)
		}
		if r.Operator.Stats().Tiers[tier.Disk].Off {
			t.Error("the disk works, and is off")
		}
	})
}
