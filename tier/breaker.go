package tier

import (
	"cmp"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// The defaults of BreakerOptions.
const (
	DefaultFailures = 5
	DefaultPause    = time.Second
	DefaultPauseMax = 30 * time.Second
)

// BreakerOptions say when a Breaker opens, and how long it stays so; what is 0 has its default.
type BreakerOptions struct {
	Failures int           // in a row that open it
	Pause    time.Duration // until the first probe. Each probe that fails doubles it
	PauseMax time.Duration // up to this
	Observe  Observer      // of WithBreaker: is told of gets, puts, deletions, syncs and searches, and of trims that evicted; nil: nobody
	Log      zerolog.Logger
}

// Verdict is what a call has proved.
type Verdict uint8

// The verdicts.
const (
	CallNothing Verdict = iota // the call says nothing about health
	CallGood                   // it works
	CallRight                  // it works, and the bytes that were read are right
	CallWrong                  // the bytes that were read are wrong
	CallBad                    // it failed
	CallHung                   // it did not answer
)

// What returns wrong bytes now and then has lost an entry; what does so again
// and again is in trouble. Each wrong payload counts as much as wrongWeight
// right ones, and wrongMost of them, less the right ones, open the breaker: from
// one in nine on, sooner or later.
const (
	wrongWeight = 8
	wrongMost   = 16
)

// Breaker is the state of one circuit breaker. It is safe for concurrent use.
//
//	         Failures × Bad in a row, one Hung, too many Wrong
//	┌────────┐ ─────────────────────────────────────────▶ ┌──────┐
//	│ closed │                                            │ open │◀───────┐
//	└────────┘            ┌─────────┐ ◀────────────────── └──────┘        │
//	     ▲                │ probing │  Admit once the pause is over        │
//	     └─────────────── └─────────┘ ─────────────────────────────────────┘
//	        Good, Right                 Bad, Hung, Wrong: the pause doubles
//	                                    Nothing: the next call may probe
//
// Closed, it admits every call. Open, it admits none until the pause is over,
// and then one: the probe. The verdict of a call that was admitted before the
// breaker last opened or closed is void.
type Breaker struct {
	o  BreakerOptions
	mu struct {
		sync.Mutex
		state   breakerState
		turn    uint64        // counts openings and closings
		failed  int           // in a row, while closed
		wrong   int           // weighted; see wrongWeight
		pause   time.Duration // the present one, unless closed
		since   time.Time     // of the last opening
		probeAt time.Time     // from when on a call may probe
		why     error         // what opened it, or what the last probe failed over
		opened  uint64
		refused uint64
	}
}

type breakerState uint8

const (
	closed breakerState = iota
	open
	probing // one call is admitted and has not ended
)

// NewBreaker returns a Breaker that is closed.
func NewBreaker(o BreakerOptions) *Breaker {
	o.Failures = cmp.Or(o.Failures, DefaultFailures)
	o.Pause = cmp.Or(o.Pause, DefaultPause)
	o.PauseMax = cmp.Or(o.PauseMax, DefaultPauseMax)
	return &Breaker{o: o}
}

// BreakerPass is the leave to make one call. It must be ended, with CallNothing if the
// call is not made after all: until then no other call probes.
type BreakerPass struct {
	turn  uint64
	probe bool
}

// Admit asks for leave to make a call; ok is false if the breaker refuses.
// canProbe says that the success of the call proves that its object works.
func (b *Breaker) Admit(canProbe bool) (p BreakerPass, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.mu.state == closed:
		return BreakerPass{turn: b.mu.turn}, true
	case !canProbe || !b.due():
		b.mu.refused++
		return BreakerPass{}, false
	}
	b.mu.state = probing
	return BreakerPass{turn: b.mu.turn, probe: true}, true
}

// due reports whether a call may probe now; called with the mutex held.
func (b *Breaker) due() bool { return b.mu.state == open && !time.Now().Before(b.mu.probeAt) }

// BreakerChange is what the end of a call has changed.
type BreakerChange struct {
	Opened bool
	Closed bool
	Pause  time.Duration // Opened: until the first probe
	Off    time.Duration // Closed: for how long it was open
}

// End says how an admitted call went; err is kept for Err if v is a failure.
func (b *Breaker) End(p BreakerPass, v Verdict, err error) BreakerChange {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.turn != b.mu.turn {
		return BreakerChange{}
	}
	if p.probe {
		return b.endProbe(v, err)
	}
	switch v {
	case CallNothing:
		return BreakerChange{}
	case CallGood, CallRight:
		b.mu.failed = 0
		b.tally(v)
		return BreakerChange{}
	case CallWrong:
		if !b.tally(v) {
			return BreakerChange{}
		}
	case CallBad:
		if b.mu.failed++; b.mu.failed < b.o.Failures {
			return BreakerChange{}
		}
	case CallHung:
	}
	b.mu.turn++
	b.mu.opened++
	b.mu.state, b.mu.failed, b.mu.why = open, 0, err
	b.mu.pause, b.mu.since = b.o.Pause, time.Now()
	b.mu.probeAt = b.mu.since.Add(b.mu.pause)
	return BreakerChange{Opened: true, Pause: b.mu.pause}
}

// endProbe is End for the call that probes; called with the mutex held.
func (b *Breaker) endProbe(v Verdict, err error) BreakerChange {
	b.mu.state = open
	switch v {
	case CallNothing:
		return BreakerChange{}
	case CallGood, CallRight:
		b.tally(v)
		b.mu.turn++
		b.mu.state, b.mu.why = closed, nil
		return BreakerChange{Closed: true, Off: time.Since(b.mu.since)}
	}
	b.mu.why = err
	b.mu.pause = min(2*b.mu.pause, b.o.PauseMax)
	b.mu.probeAt = time.Now().Add(b.mu.pause)
	return BreakerChange{}
}

// tally counts payloads that were read, and reports whether too many are wrong;
// called with the mutex held.
func (b *Breaker) tally(v Verdict) bool {
	switch v {
	case CallRight:
		b.mu.wrong = max(0, b.mu.wrong-1)
	case CallWrong:
		b.mu.wrong += wrongWeight
	}
	if v != CallWrong || b.mu.wrong < wrongMost*wrongWeight {
		return false
	}
	b.mu.wrong /= 2 // the next time it takes less
	return true
}

// Refuses reports whether a call would be refused now, also one that can probe.
func (b *Breaker) Refuses() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.state != closed && !b.due()
}

// ProbeNow lets the next call probe, however long the pause still lasts.
func (b *Breaker) ProbeNow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.probeAt = time.Now()
}

// Err is what opened the breaker, or what the last probe failed over; nil if it
// is closed.
func (b *Breaker) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.state == closed {
		return nil
	}
	return b.mu.why
}

// BreakerStats is a snapshot of a Breaker.
type BreakerStats struct {
	Open    bool   // open or probing
	Opened  uint64 // times
	Refused uint64 // calls
}

// Stats returns a snapshot.
func (b *Breaker) Stats() BreakerStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return BreakerStats{Open: b.mu.state != closed, Opened: b.mu.opened, Refused: b.mu.refused}
}
