package policytest

import (
	"fmt"
	"testing"
)

// Ops is how many operations Run compares: what the contract asks for. Under
// the race detector they are fewer.
const Ops = 1_000_000

// Run is the conformance suite.
func Run(t *testing.T, name string) {
	t.Run("differs from its model nowhere", func(t *testing.T) {
		const seeds = 4
		for seed := range uint64(seeds) {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
				t.Parallel()
				sizes := []int64{1, 5}[seed%2]
				Differ(t, name, sizes, Seeded(seed, ops/seeds))
			})
		}
	})
	t.Run("steps, alternating locks", func(t *testing.T) { alternate(t, name) })
	t.Run("steps, chains", func(t *testing.T) { chains(t, name) })
	t.Run("steps, pinned", func(t *testing.T) { pinned(t, name) })
}
