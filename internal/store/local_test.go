package store_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// A space that is kept local is never written to the remote tier nor looked for
// there, in any write mode, and does not depend on it.
func TestKeepLocal(t *testing.T) {
	for name, mode := range modes {
		for where, lone := range map[string]bool{"with a disk": false, "without": true} {
			t.Run(name+" "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := tiertest.Chain(1, 1)
					far := tierfault.Wrap(tiertest.NewMemory("remote", 64*mib), func(call tierfault.Call) tierfault.Fault {
						if call.Op != tierfault.Put || call.Keys[0].Space == c.Space {
							t.Errorf("%s of %v in the remote tier", call.Op, call.Keys)
						}
						return tierfault.Fault{}
					})
					r := newRig(t, options{mode: mode, remote: struct{ tier.Tier }{far}, lone: lone})
					r.Writers.KeepLocal(c.Space)
					o := r.Leases.NewOwner()
					defer r.Leases.CloseOwner(o)
					for v := range byte(3) {
						r.replace(o, c, v, v)
						if got := r.value(o, c); got != v {
							t.Errorf("read %d after %d was stored", got, v)
						}
						r.flush()
					}
					r.evict()
					synctest.Wait()
					_, _, err := r.Loader.Load(t.Context(), store.Requester{Owner: ledger.Daemon}, c, 0, tier.Of(tier.Remote))
					if !errors.Is(err, tier.ErrNotFound) {
						t.Errorf("looked for in the remote tier only: %v", err)
					}
					if !lone {
						if got := r.value(o, c); got != 2 {
							t.Errorf("read %d after 2 was stored", got)
						}
					}
					if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(c, 0, 1)); err != nil {
						t.Error(err)
					}
					for p, w := range r.Writers.Written() {
						if len(w.Dropped) > 0 {
							t.Errorf("dropped on the way to %s: %v", p, w.Dropped)
						}
					}
				})
			})
		}
	}
}
