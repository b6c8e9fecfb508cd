package tier

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var errIO = errors.New("input/output error")

// call makes a call that ends with a verdict, and reports whether it was admitted.
func call(b *Breaker, v Verdict) bool {
	p, ok := b.Admit(true)
	if ok {
		b.End(p, v, errIO)
	}
	return ok
}

func calls(b *Breaker, vs ...Verdict) {
	for _, v := range vs {
		call(b, v)
	}
}

func TestOpensAfterFailuresInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBreaker(BreakerOptions{Failures: 3})
		for range 5 {
			calls(b, CallBad, CallBad, CallNothing, CallGood)
		}
		calls(b, CallBad, CallBad)
		if b.Refuses() || b.Err() != nil {
			t.Fatal("open before three failures in a row")
		}
		p, _ := b.Admit(true)
		if c := b.End(p, CallBad, errIO); !c.Opened || c.Pause != DefaultPause {
			t.Errorf("the third failure in a row changes %+v", c)
		}
		if !b.Refuses() || call(b, CallGood) {
			t.Error("a call is admitted by an open breaker")
		}
		if st := b.Stats(); !b.Refuses() || !errors.Is(b.Err(), errIO) || st != (BreakerStats{Open: true, Opened: 1, Refused: 1}) {
			t.Errorf("%+v, %v", st, b.Err())
		}
	})
}

func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBreaker(BreakerOptions{Failures: 1, Pause: time.Second, PauseMax: 3 * time.Second})
		call(b, CallBad)
		for _, pause := range []time.Duration{1, 2, 3, 3} { // seconds
			time.Sleep(pause*time.Second - time.Millisecond)
			if call(b, CallGood) {
				t.Fatalf("a probe before the pause of %d s is over", pause)
			}
			time.Sleep(time.Millisecond)
			if b.Refuses() || !call(b, CallBad) {
				t.Fatalf("no probe after %d s", pause)
			}
		}
		time.Sleep(3 * time.Second)
		p, ok := b.Admit(true)
		if _, second := b.Admit(true); !ok || second || !b.Refuses() {
			t.Fatal("not one probe at a time")
		}
		if c := b.End(p, CallRight, nil); !c.Closed || c.Off != 12*time.Second {
			t.Errorf("a probe that succeeds changes %+v", c)
		}
		if b.Refuses() || b.Err() != nil || b.Stats().Open {
			t.Error("open after a probe that succeeded")
		}
	})
}

// A call whose success proves nothing does not probe, and a probe that proves
// nothing leaves the next call to probe at once.
func TestProbeThatProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBreaker(BreakerOptions{})
		call(b, CallHung)
		time.Sleep(DefaultPause)
		if _, ok := b.Admit(false); ok {
			t.Error("a call that cannot probe is admitted")
		}
		calls(b, CallNothing)
		if b.Refuses() || !call(b, CallGood) || b.Stats().Open {
			t.Error("the probe after one that proved nothing does not end it")
		}
	})
}

// What was admitted before the breaker opened says nothing about the time after.
func TestVerdictsOfEarlierTurnsAreVoid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBreaker(BreakerOptions{})
		early, _ := b.Admit(true)
		late, _ := b.Admit(true)
		if !b.End(early, CallHung, errIO).Opened {
			t.Fatal("a call that hung does not open it")
		}
		if c := b.End(late, CallGood, nil); c != (BreakerChange{}) || !b.Refuses() {
			t.Errorf("a call from before the opening changes %+v", c)
		}
		time.Sleep(DefaultPause)
		calls(b, CallGood)
		if b.End(early, CallHung, errIO); b.Refuses() {
			t.Error("a call from two turns ago opens it")
		}
	})
}

func TestProbeNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBreaker(BreakerOptions{Pause: time.Hour, PauseMax: time.Hour})
		call(b, CallHung)
		if b.ProbeNow(); b.Refuses() || !call(b, CallBad) || !b.Refuses() {
			t.Error("not one probe at once")
		}
	})
}

// Wrong payloads now and then are forgiven; again and again they open it, and
// sooner the second time.
func TestWrongBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBreaker(BreakerOptions{})
		until := func() (n int) {
			for n = 1; call(b, CallWrong) && !b.Refuses(); n++ {
			}
			return n
		}
		for range 100 { // one in eleven
			calls(b, CallWrong, CallRight, CallRight, CallRight, CallRight, CallRight, CallRight, CallRight, CallRight, CallRight, CallRight)
		}
		if b.Refuses() {
			t.Fatal("open over wrong bytes now and then")
		}
		first := until()
		if first > wrongMost {
			t.Errorf("open after %d wrong payloads in a row; want %d at most", first, wrongMost)
		}
		time.Sleep(DefaultPause)
		calls(b, CallRight)
		if again := until(); again >= first {
			t.Errorf("open again after %d, the first time after %d", again, first)
		}
	})
}
