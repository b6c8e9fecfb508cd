package sample

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

const (
	metered = 32                     // one of so many notes is timed, and stands for all
	longest = 100 * time.Microsecond // that a note can take; one that took longer was interrupted
)

// meter is what requests take to note their prompts, in nanoseconds.
type meter struct {
	all   atomic.Int64
	taken atomic.Int64 // of these, what it took for prompts that are in the sample
}

// begin is when a note began; zero if it is not timed.
func (m *meter) begin() (t time.Time) {
	if rand.Uint32()%metered == 0 {
		t = time.Now()
	}
	return t
}

func (m *meter) end(begun time.Time, taken bool) {
	if begun.IsZero() {
		return
	}
	took := metered * int64(min(time.Since(begun), longest))
	m.all.Add(took)
	if taken {
		m.taken.Add(took)
	}
}
