package index_test

import (
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/index"
)

// The resume points are the end and the junction that was not usable, each once and in order.
func TestEachResumePoint(t *testing.T) {
	for n := range 13 {
		for run := range n + 1 {
			for hit := range run + 1 {
				var want, got []int
				for end := 1; end <= n; end++ {
					if end == n || end == run && hit < run {
						want = append(want, end)
					}
				}
				index.EachResumePoint(hit, run, n, func(end int) { got = append(got, end) })
				if !slices.Equal(got, want) {
					t.Fatalf("%d of %d of %d: %v; want %v", hit, run, n, got, want)
				}
			}
		}
	}
}
