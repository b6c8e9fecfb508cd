package remote

import (
	"slices"
	"sync"
	"time"
)

const (
	// hedgeShare is the most extra gets there are for each get.
	hedgeShare = 0.05
	hedgeSaved = 5
	// hedgeLost is what one that the first request beats costs besides: where
	// all answers are late alike, because the store or the network is full, a
	// sixtieth is asked twice, and where one of many is late, a twentieth.
	hedgeLost = 2
	// latencyWindow is how many answers the quantile is taken over, and
	// latencyLeast how many there must be before anything is hedged.
	latencyWindow = 128
	latencyLeast  = 20
	latencyShare  = 0.95
	// hedgeLeast keeps a store that is fast from being asked twice for the
	// sake of a few milliseconds.
	hedgeLeast = 20 * time.Millisecond
)

// latencies remembers how long the last gets took to their first byte
// (Dean, Barroso, The Tail at Scale, CACM 2013: hedge after the 95th
// percentile, and it costs a few percent).
type latencies struct {
	mu struct {
		sync.Mutex
		last [latencyWindow]time.Duration
		n    int
	}
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.last[l.mu.n%latencyWindow] = d
	l.mu.n++
}

// hedgeAfter is when a get counts as late; false while too little is known.
func (l *latencies) hedgeAfter() (time.Duration, bool) {
	l.mu.Lock()
	last, n := l.mu.last, min(l.mu.n, latencyWindow)
	l.mu.Unlock()
	if n < latencyLeast {
		return 0, false
	}
	slices.Sort(last[:n])
	return max(last[int(latencyShare*float64(n-1))], hedgeLeast), true
}
