package store_test

import (
	"testing"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// TestEvictedByName: of a chunk that was evicted Why names the policy, whichever that is.
func TestEvictedByName(t *testing.T) {
	for _, name := range policy.All() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, options{lone: true, policy: name})
			var chains []*key.Chain
			for seed := range uint64(2 * 4 * mib / size) { // twice what DRAM holds
				c := tiertest.Chain(seed, 1)
				chains = append(chains, c)
				r.Planning.Observe(c, store.Prompt{})
				if grants, err := r.reserve(0, c, 0, 1, size); err == nil {
					commit(r.Store, c, 0, fill(c, 0, grants))
				}
			}
			evicted := 0
			for _, c := range chains {
				if a := r.Lookups.Why(c, 0, tier.All); a.Reason == explain.Evicted {
					if evicted++; a.Policy != name {
						t.Fatalf("evicted by %q", a.Policy)
					}
				}
			}
			if evicted == 0 {
				t.Error("nothing was evicted")
			}
		})
	}
}
