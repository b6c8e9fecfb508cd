package replay

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// maxSamples bounds what Latencies keeps: 8 MiB.
const maxSamples = 1 << 20

// Latencies keeps durations for their percentiles: all of the first million,
// so that these are exact, and a uniform sample beyond (Vitter: Random sampling
// with a reservoir, ACM TOMS 11(1), 1985, algorithm R). The zero value is
// ready. It is not safe for concurrent use.
type Latencies struct {
	kept   []time.Duration
	seen   uint64
	sorted bool
}

// Add adds one duration.
func (l *Latencies) Add(d time.Duration) {
	l.seen++
	if len(l.kept) < maxSamples {
		l.kept = append(l.kept, d)
		l.sorted = false
		return
	}
	if i := rand.Uint64N(l.seen); i < maxSamples {
		l.kept[i] = d
		l.sorted = false
	}
}

// Len is how many durations were added.
func (l *Latencies) Len() int { return int(l.seen) }

// Percentile is the smallest duration that p percent of all do not exceed; 0
// where there are none.
func (l *Latencies) Percentile(p float64) time.Duration {
	s := l.Sorted()
	if len(s) == 0 {
		return 0
	}
	rank := int(math.Ceil(p/100*float64(len(s)))) - 1
	return s[min(max(rank, 0), len(s)-1)]
}

// Sorted is the kept times, in order. It is good until the next Add.
func (l *Latencies) Sorted() []time.Duration {
	if !l.sorted {
		slices.Sort(l.kept)
		l.sorted = true
	}
	return l.kept
}
