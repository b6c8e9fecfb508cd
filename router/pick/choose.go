package pick

import "math"

// tie is the difference of two times that means nothing, as a share of them.
const tie = 1e-9

// Choose returns the place of the estimate to take, -1 of none. With a temperature
// of 0 it is the fastest, and of several equally fast ones each with the same
// chance. With a temperature of t seconds, one that takes s seconds longer than the
// fastest has exp(-s/t) times its chance. random returns numbers from 0 to below 1.
func Choose(all []Estimate, temperature float64, random func() float64) int {
	if len(all) == 0 {
		return -1
	}
	least := math.Inf(1)
	for i := range all {
		least = min(least, all[i].Seconds())
	}
	weight := func(e Estimate) float64 {
		late := e.Seconds() - least
		switch {
		case late <= tie*least:
			return 1
		case temperature <= 0:
			return 0
		}
		return math.Exp(-late / temperature)
	}
	sum := 0.0
	for i := range all {
		sum += weight(all[i])
	}
	at := random() * sum
	last := -1
	for i := range all {
		w := weight(all[i])
		if w == 0 {
			continue
		}
		if last = i; at < w {
			return i
		}
		at -= w
	}
	return last // rounding
}
