package server_test

import (
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/wire"
)

// A connection that would hold something where as many do as may is told so, and asks all
// else; it has what it wants once another has left.
func TestOwnersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		p := chain(1, 2)
		r.store(p, 0, 2)
		var others []ledger.Owner
		for o := r.tiers.Leases.NewOwner(); o != ledger.Daemon; o = r.tiers.Leases.NewOwner() {
			others = append(others, o)
		}
		c := r.greet(0)
		c.refused(wire.CodeOverBudget, wire.OpPrefetch, &wire.PrefetchRequest{Chain: c.chain(p)})
		c.refused(wire.CodeOverBudget, wire.OpPin, &wire.PinRequest{Chain: c.chain(p), LookupID: "x"})
		c.do(wire.OpPin, &wire.PinRequest{Chain: wire.Chain{Form: wire.FormNone}, LookupID: "x"}, &wire.PinReply{})
		var found wire.LookupReply
		c.do(wire.OpLookup, &wire.LookupRequest{Chain: c.chain(p)}, &found)
		if found.Match.Total.Chunks != 2 {
			t.Errorf("%d chunks are found", found.Match.Total.Chunks)
		}
		r.tiers.Leases.CloseOwner(others[0])
		c.prefetch(p)
		for _, o := range others[1:] {
			r.tiers.Leases.CloseOwner(o)
		}
	})
}
