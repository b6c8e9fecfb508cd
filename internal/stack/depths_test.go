package stack_test

import (
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// TestPrefillDepth: a tier that ranks by compute is told what its space, or else the
// client, says of that; one that ranks by tokens is told nothing.
func TestPrefillDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := newPlanned(t, options{quotas: []stack.Quota{{Match: "deep-*", PrefillDepth: 8000}}})
		c := tiertest.Chain(1, 2)
		want := func(when string, said, want int) {
			t.Helper()
			r.Observe(c, stack.Prompt{PrefillDepth: said})
			if got := p.asked[len(p.asked)-1].PrefillDepth; got != want {
				t.Errorf("%s: the disk is told %d, want %d", when, got, want)
			}
		}
		r.OpenSpace(c.Space, "deep-model")
		want("by tokens", 5, 0)
		r.Stack.Set(stack.Settings{ByCompute: tier.Of(tier.CPU)})
		want("DRAM by compute", 5, 0)
		r.Stack.Set(stack.Settings{ByCompute: tier.Of(tier.Disk)})
		want("of the space", 0, 8000)
		want("of the client", 5, 5)
		r.OpenSpace(c.Space, "deep-model")
		r.CloseSpace(c.Space)
		want("open once more", 0, 8000)
		known := func() map[key.SpaceID]string { return map[key.SpaceID]string{c.Space: "deep-model"} }
		if err := r.SetQuotas([]stack.Quota{{Match: "*", PrefillDepth: 70}}, known); err != nil {
			t.Fatal(err)
		}
		want("under another rule", 0, 70)
		r.CloseSpace(c.Space)
		want("closed", 0, policy.DefaultPrefillDepth)
	})
}
