package hybrid_test

import (
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/hybrid"
)

// The boundaries are the end, the junction and the multiples that were not usable, each once
// and in order.
func TestBoundaries(t *testing.T) {
	for n := range 13 {
		for run := range n + 1 {
			for hit := range run + 1 {
				for every := range 6 {
					var want, got []int
					for end := 1; end <= n; end++ {
						if end == n || end == run && hit < run || every > 0 && end%every == 0 && end > hit {
							want = append(want, end)
						}
					}
					hybrid.Boundaries(hit, run, n, every, func(end int) { got = append(got, end) })
					if !slices.Equal(got, want) {
						t.Fatalf("%d of %d of %d, every %d: %v; want %v", hit, run, n, every, got, want)
					}
				}
			}
		}
	}
}
