package measure

import (
	"cmp"
	"math"
	"slices"
)

// Quantile is the smallest value of a sample that a share of its values do not exceed, by
// the nearest rank: .5 is the median, 1 the largest. The sample is not changed, and must
// have a value.
func Quantile[T cmp.Ordered](sample []T, share float64) T {
	sorted := slices.Sorted(slices.Values(sample))
	return sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)]
}

// Median is the quantile .5.
func Median[T cmp.Ordered](sample []T) T { return Quantile(sample, .5) }
