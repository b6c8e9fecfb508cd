package policytest

import (
	"fmt"
	"testing"

	"github.com/kvstored/kvstored/policy"
)

// New returns a policy by name, for entries of size 1 whose hashes are their
// IDs.
func New(t testing.TB, name string, capacity int64) policy.Policy {
	t.Helper()
	p, err := policy.New(name, capacity)
	if err != nil {
		t.Fatal(err)
	}
	readMeta(p, func(id policy.ID) policy.Meta { return policy.Meta{Hash: uint64(id), Size: 1} })
	return p
}

// readMeta gives a policy that is a MetaReader the function of to read from.
func readMeta(p policy.Policy, of func(policy.ID) policy.Meta) {
	if p, ok := p.(policy.MetaReader); ok {
		p.ReadMetaFrom(of)
	}
}

// Run is the conformance suite: bounds on steps, and so many random histories of so many
// operations, each with entries of one size and of five.
func Run(t *testing.T, name string, seeds uint64, ops int) {
	t.Run("differs from its model nowhere", func(t *testing.T) {
		for seed := range seeds {
			for _, sizes := range []int64{1, 5} {
				t.Run(fmt.Sprintf("seed %d, %d sizes", seed, sizes), func(t *testing.T) {
					t.Parallel()
					Differ(t, name, sizes, Seeded(seed, ops))
				})
			}
		}
	})
	t.Run("steps, alternating locks", func(t *testing.T) { alternate(t, name) })
	t.Run("steps, chains", func(t *testing.T) { chains(t, name) })
	t.Run("steps, pinned", func(t *testing.T) { pinned(t, name) })
}
