package cpu_test

import (
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// While DRAM is populated a fill waits for more of it, also where its own client alone holds all of
// the populated part. The watermarks are shares of that part.
func TestWhilePopulating(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slice, capacity = 64 * mib, 192 * mib
		parts := make(chan struct{}, capacity/mib)
		for range slice / mib {
			parts <- struct{}{}
		}
		a, err := arena.New(arena.Options{CapacityBytes: capacity, Touch: func(p []byte, _ bool) error {
			for range len(p) / mib {
				<-parts
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		lru, err := policy.New("lru", capacity)
		if err != nil {
			t.Fatal(err)
		}
		h := cpu.New(cpu.Options{
			Arena: a, Ledger: ledger.New(ledger.Options{CapacityBytes: capacity, Policy: lru}), HighWatermark: 0.75, LowWatermark: 0.5,
		})
		ended := make(chan error, 1)
		go func() { ended <- a.Populate(t.Context()) }()
		if n := h.Room(mib); n != 48 {
			t.Errorf("room for %d MiB with %d populated", n, slice/mib)
		}
		var d drops
		o := h.Ledger().NewOwner()
		defer h.Ledger().CloseOwner(o)
		first, _, err := h.Reserve(t.Context(), fillOf(o, tiertest.Chain(1, 1), 0, slice, &d))
		if err != nil || !h.Crowded(0) {
			t.Fatalf("the first fill: %v; crowded: %t", err, h.Crowded(0))
		}
		defer h.Abort([]tier.Ref{first})
		more := waiting(t.Context(), h, fillOf(o, tiertest.Chain(2, 1), 0, mib, &d))
		wantWaiting(t, more)
		for range slice / mib {
			parts <- struct{}{}
		}
		if err := <-more; err != nil {
			t.Error(err)
		}
		close(parts)
		if err := <-ended; err != nil || h.Room(mib) != 144-64 {
			t.Errorf("at the end: %v, room for %d MiB", err, h.Room(mib))
		}
	})
}
