package arena

import (
	"testing"
	"testing/synctest"
	"time"
)

// slowWays copies in virtual time.
type slowWays struct {
	takes [2]time.Duration
	calls [2]int
}

func (s *slowWays) way() *CopyWay {
	var w CopyWay
	for i := range w.ways {
		w.ways[i] = func(dst, src []byte) int {
			s.calls[i]++
			time.Sleep(s.takes[i])
			return copy(dst, src)
		}
	}
	return &w
}

// The faster way is taken, also when another becomes it, and trials are few. One
// copy that is interrupted changes nothing.
func TestWayIsTheFaster(t *testing.T) {
	ways(t, func(t *testing.T) {
		if !streams {
			t.Skip("there is one way here")
		}
		synctest.Test(t, func(t *testing.T) {
			const hot, cold = 0, 1
			s := slowWays{takes: [2]time.Duration{hot: 3 * time.Millisecond, cold: time.Millisecond}}
			w, p := s.way(), make([]byte, streamedBytes)
			run := func(n int) (calls [2]int) {
				before := s.calls
				for range n {
					w.Copy(p, p)
				}
				return [2]int{s.calls[hot] - before[hot], s.calls[cold] - before[cold]}
			}
			if n := run(firstTrial); n[cold] != 0 {
				t.Errorf("past the caches before a trial: %v", n)
			}
			if n := run(settling + counted + 100); n[hot] != 0 {
				t.Errorf("the faster way is not taken after the trial: %v", n)
			}
			if n := run(10 * trialEvery); n[hot] > 10*(settling+counted) {
				t.Errorf("%v copies, of which the first kind are trials", n)
			}
			s.takes = [2]time.Duration{hot: time.Millisecond, cold: time.Millisecond}
			run(2 * trialEvery)
			if n := run(100); n[cold] > settling+counted {
				t.Errorf("of two that are as fast it does not take the one that helps the reader: %v", n)
			}
			for i := range 4 * trialEvery { // one in two trials is interrupted
				s.takes[hot] = time.Millisecond
				if i%trialEvery == trialEvery-1 {
					s.takes[hot] = time.Second
				}
				w.Copy(p, p)
			}
			if w.cold {
				t.Error("an interrupted copy has changed the way")
			}
		})
	})
}
