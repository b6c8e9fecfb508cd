package store_test

import (
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// TestPrefillDepth: under a rule with a depth the policies are told it, or what the client
// says; else nothing, and they rank by tokens.
func TestPrefillDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := newPlanned(t, options{quotas: []store.Quota{{Match: "deep-*", PrefillDepth: 8000}}})
		c := tiertest.Chain(1, 2)
		want := func(when string, said, want int) {
			t.Helper()
			r.Planning.Observe(c, store.Prompt{PrefillDepth: said})
			if got := p.asked[len(p.asked)-1].PrefillDepth; got != want {
				t.Errorf("%s: the disk is told %d, want %d", when, got, want)
			}
		}
		want("not open", 5, 0)
		r.Operator.OpenSpace(c.Space, "deep-model")
		want("of the space", 0, 8000)
		want("of the client", 5, 5)
		r.Operator.OpenSpace(c.Space, "deep-model")
		r.Operator.CloseSpace(c.Space)
		want("open once more", 0, 8000)
		known := func() map[key.SpaceID]string { return map[key.SpaceID]string{c.Space: "deep-model"} }
		if err := r.Operator.SetQuotas([]store.Quota{{Match: "*", PrefillDepth: 70}}, known); err != nil {
			t.Fatal(err)
		}
		want("under another rule", 0, 70)
		if err := r.Operator.SetQuotas([]store.Quota{{Match: "*", Bytes: 1 << 40}}, known); err != nil {
			t.Fatal(err)
		}
		want("under a rule without one", 5, 0)
	})
}
