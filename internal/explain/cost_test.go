package explain

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestCostHalves: prompts that take more than their share of time halve the sample.
func TestCostHalves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which what is paced takes the time that the test says
		busy := 100 * time.Second
		r := NewRecorder(RecorderOptions{Busy: func() time.Duration { return busy }, Used: func() time.Duration { return 0 }, Tiers: func() Tiers { return Tiers{} }})
		if got := idle(time.Second, 3*time.Second); got != 0 {
			t.Errorf("a process that used three processors did nothing for %v", got)
		}
		r.pace(time.Now(), false) // the first has nothing to compare with
		busy += time.Second
		if r.pace(time.Now(), false); r.book.shift != 0 {
			t.Error("the sample is halved without need")
		}
		if r.pace(time.Now().Add(-time.Second), false); r.book.shift != 1 {
			t.Errorf("a second for one second of requests: 1 of %d sessions", 1<<r.book.shift)
		}
		if got := r.Spent(); got < time.Second {
			t.Errorf("spent %v", got)
		}
	})
}

// TestNotesCount: what requests take to note their prompts is spent, and halves the sample
// where it is more than its share; what they take to pass over the others cannot.
func TestNotesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which what is paced takes the time that the test says
		busy := 100 * time.Second
		r := NewRecorder(RecorderOptions{Busy: func() time.Duration { return busy }, Used: func() time.Duration { return 0 }, Tiers: func() Tiers { return Tiers{} }})
		r.pace(time.Now(), false)
		for range 100 * metered {
			begun := time.Now().Add(-time.Second) // interrupted
			r.notes.end(begun, false)
			r.notes.end(time.Time{}, true) // not timed
		}
		busy += time.Second
		if r.pace(time.Now(), false); r.book.shift != 0 {
			t.Error("prompts that are not in the sample halve it")
		}
		if got, want := r.Spent(), 100*metered*metered*longest; got < want || got > want+time.Second {
			t.Errorf("spent %v of %v", got, want)
		}
		for range 100 {
			r.notes.end(time.Now().Add(-time.Second), true)
		}
		if r.pace(time.Now(), false); r.book.shift != 1 {
			t.Errorf("320 ms for one second of requests: 1 of %d sessions", 1<<r.book.shift)
		}
		if r.pace(time.Now(), false); r.book.shift != 1 {
			t.Error("they halve it twice")
		}
	})
}
