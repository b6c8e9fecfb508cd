package explain

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestCostHalves: a sample that takes more than its share of a processor's time is halved, and
// one that loses prompts for want of room.
func TestCostHalves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which what is paced takes the time that the test says
		r := NewRecorder(RecorderOptions{Tiers: func() Tiers { return Tiers{} }})
		r.pace(time.Now(), false)
		time.Sleep(time.Second)
		if r.pace(time.Now().Add(-10*time.Millisecond), false); r.book.shift != 0 {
			t.Error("10 ms of a second halve the sample")
		}
		time.Sleep(time.Second)
		if r.pace(time.Now().Add(-11*time.Millisecond), false); r.book.shift != 1 {
			t.Errorf("11 ms of a second: 1 of %d sessions", 1<<r.book.shift)
		}
		if r.pace(time.Now().Add(-time.Millisecond), false); r.book.shift != 1 {
			t.Error("a millisecond halves the sample")
		}
		if r.pace(time.Now(), true); r.book.shift != 2 {
			t.Errorf("prompts were dropped: 1 of %d sessions", 1<<r.book.shift)
		}
		if got := r.Stats().Seconds; got != 0.022 {
			t.Errorf("%v s", got)
		}
	})
}
