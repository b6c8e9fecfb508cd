package socket

import (
	"testing"
	"time"
)

// under is a machine of four processors under a pressure.
func under(share float64, ok bool) *machine {
	return &machine{most: 2, start: time.Unix(0, 0), pressure: func() (float64, bool) { return share, ok }}
}

// TestWait: a wait polls for 50 us and no longer, also when it goes on after a sleep; the
// next one polls again.
func TestWait(t *testing.T) {
	m, now := under(3, true), time.Unix(1000, 0)
	var w Poll
	for range 2 {
		if !w.again(m, now) || !w.again(m, now.Add(LongestPoll)) {
			t.Error("it does not poll")
		}
		if w.again(m, now.Add(LongestPoll+1)) || w.again(m, now.Add(time.Minute)) || m.pollers.Load() != 0 {
			t.Error("it polls for longer")
		}
		w.over(m)
		now = now.Add(time.Hour)
	}
	if !w.again(m, now) {
		t.Error("it does not poll")
	}
	w.over(m)
	w.over(m)
	if n := m.pollers.Load(); n != 0 {
		t.Errorf("%d pollers are left", n)
	}
}

// TestPollers: half of the processors stay free.
func TestPollers(t *testing.T) {
	m, now := under(0, true), time.Unix(1000, 0)
	var w [3]Poll
	for i, want := range []bool{true, true, false} {
		if got := w[i].again(m, now); got != want {
			t.Errorf("poller %d: %t", i, got)
		}
	}
	w[0].over(m)
	if w[2].again(m, now) {
		t.Error("a wait that has begun without a place polls")
	}
	if w[2].over(m); !w[2].again(m, now) {
		t.Error("a place that is free is not taken")
	}
}

// TestBusy: nobody polls while threads wait for processors, or where that cannot be told;
// a second later it is looked at anew.
func TestBusy(t *testing.T) {
	share, ok := 25.0, true
	m := &machine{most: 2, start: time.Unix(0, 0), pressure: func() (float64, bool) { return share, ok }}
	polls := func(at time.Time) bool {
		var w Poll
		defer w.over(m)
		return w.again(m, at)
	}
	now := time.Unix(1000, 0)
	if polls(now) {
		t.Error("it polls under pressure")
	}
	share = 24.9
	if polls(now.Add(pressureEvery)) || !polls(now.Add(pressureEvery+1)) {
		t.Error("it looks too soon, or never")
	}
	share, ok = 0, false
	if polls(now.Add(time.Minute)) {
		t.Error("it polls without knowing the pressure")
	}
}

// TestPressure: the file as kernels have it, and others.
func TestPressure(t *testing.T) {
	for text, want := range map[string]float64{
		"some avg10=44.08 avg60=76.42 avg300=89.15 total=2218481228\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n": 44.08,
		"some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n":                                                             0,
		"": -1, "some avg10=": -1, "some avg10=x y": -1, "full avg10=1.00 avg60=0.00\n": -1,
	} {
		if got, ok := waiting([]byte(text)); ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %v, %t", text, got, ok)
		}
	}
}
