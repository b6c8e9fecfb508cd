package arena

import (
	"math"
	"sync"
	"time"
)

const (
	// A trial of the other way comes after so many copies: soon at first, and then so
	// seldom that it costs little where the other way is three times slower.
	firstTrial = 32
	trialEvery = 512
	// settling is how many copies of a trial do not count: what the way before has
	// left in the caches, or has not, shows in them.
	settling = 3
	// counted is how many copies of each way are timed. The fastest counts:
	// slower ones were interrupted, or met pages for the first time.
	counted = 3
	// muchFaster is what part of the time the way past the caches may take at most to
	// be chosen. The reader gains by caches, too, which the writer does not see.
	muchFaster = 0.8
)

// CopyWay copies payloads to memory that another process reads soon and that is
// written again and again. Through the caches is best where the two processors
// share one: the reader finds the bytes there. Where they do not, each line is
// fetched from the other's cache to be written, and copies past the caches are
// three times as fast, for the writer alone already (Zen 5). Processes move, so a
// Way times both now and then, and takes the faster.
//
// The zero value is ready, and safe for concurrent use.
type CopyWay struct {
	ways [2]func(dst, src []byte) int // of a test; nil: Copy and CopyCold

	mu      sync.Mutex
	cold    bool       // past the caches
	tried   bool       // there was a trial
	begun   int        // copies since the last trial
	timed   [2]int     // of these, of either way
	fastest [2]float64 // of those, in ns a byte
}

// Copy copies as copy does.
func (w *CopyWay) Copy(dst, src []byte) int {
	n := min(len(dst), len(src))
	if !streams || n < streamedBytes {
		return Copy(dst, src)
	}
	cold, counts := w.next()
	if !counts {
		return w.by(cold)(dst, src)
	}
	start := time.Now()
	w.by(cold)(dst, src)
	w.took(cold, float64(time.Since(start))/float64(n))
	return n
}

func (w *CopyWay) by(cold bool) func(dst, src []byte) int {
	ways := w.ways
	if ways[0] == nil {
		ways = [2]func(dst, src []byte) int{Copy, CopyCold}
	}
	return ways[wayIndex(cold)]
}

func wayIndex(cold bool) int {
	if cold {
		return 1
	}
	return 0
}

// next says which way the next copy goes, and whether its time counts.
func (w *CopyWay) next() (cold, counts bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	trial := trialEvery
	if !w.tried {
		trial = firstTrial
	}
	w.begun++
	switch at := w.begun - trial; {
	case at <= -counted, at > settling+counted:
		return w.cold, false
	case at <= 0:
		return w.cold, true
	default:
		return !w.cold, at > settling
	}
}

// took notes the time of a copy, and decides after the last one.
func (w *CopyWay) took(cold bool, perByte float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := wayIndex(cold)
	if w.timed[i] == 0 {
		w.fastest[i] = math.Inf(1)
	}
	w.timed[i]++
	w.fastest[i] = min(w.fastest[i], perByte)
	if w.timed[0] < counted || w.timed[1] < counted {
		return
	}
	w.cold = w.fastest[1] < muchFaster*w.fastest[0]
	w.tried, w.begun, w.timed = true, 0, [2]int{}
}
