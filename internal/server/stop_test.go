package server_test

import (
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
)

// TestReserveAtTheEnd: a reserve that waits when the daemon stops is told so, not that
// there is no room: its client connects again, to the daemon that took over.
func TestReserveAtTheEnd(t *testing.T) {
	open := make(chan struct{})
	defer close(open)
	for name, tt := range map[string]struct {
		o     options
		taken int // chunks of DRAM that others hold to the end
	}{
		"for room": {options{capacity: 8 * size}, 8},
		"for a disk that is being read": {options{scanning: true, hook: func(c tierfault.Call) tierfault.Fault {
			if c.Op == tierfault.Recover || c.Op == tierfault.Contains {
				return tierfault.Fault{Until: open}
			}
			return tierfault.Fault{}
		}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, tt.o)
				for i := range tt.taken {
					o, g := r.tiers.Leases.NewOwner(), make([]store.Grant, 1)
					_, err := r.tiers.Filler.Reserve(t.Context(), store.Reservation{Owner: o}, chain(1, tt.taken), i, []uint32{size}, g)
					r.must(err)
					defer r.tiers.Leases.CloseOwner(o)
					defer r.tiers.Filler.Abort([]tier.Ref{g[0].Ref})
				}
				c := r.greet(wire.FeatureArena | wire.FeatureStaging)
				waits := c.send(wire.OpReserve, &wire.ReserveRequest{
					Chain: c.chain(chain(2, 1)), Sizes: wire.ViewU32s([]uint32{size}), Deadline: wire.Deadline{Given: true, Millis: 1 << 30},
				})
				c.ping()
				go r.stop()
				if f := c.take(waits); f.Code != wire.CodeClosed {
					t.Errorf("at the end: %s, %s", f.Code, text(f))
				}
			})
		})
	}
}
