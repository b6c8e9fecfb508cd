package simulate

import "math"

// sweepOctaves is how far a sweep goes below the size of the trace: a factor
// of 512 is a thousand blocks where the published traces have some 200,000.
const sweepOctaves = 9

// Sweep returns capacities that show the whole curve of a trace: two an
// octave, up to all its blocks.
func (t *Trace) Sweep() []int { return sweep(t.Distinct()) }

func sweep(distinct int) (capacities []int) {
	for i := 2 * sweepOctaves; i >= 0; i-- {
		c := roundTo2(float64(distinct) / math.Exp2(float64(i)/2))
		if i == 0 {
			c = distinct
		}
		if c >= 1 && c <= distinct && (len(capacities) == 0 || c > capacities[len(capacities)-1]) {
			capacities = append(capacities, c)
		}
	}
	return capacities
}

// roundTo2 rounds to two digits.
func roundTo2(x float64) int {
	unit := math.Pow(10, max(0, math.Floor(math.Log10(x))-1))
	return int(math.Round(x/unit) * unit)
}
