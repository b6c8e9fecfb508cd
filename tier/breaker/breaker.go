package breaker

import (
	"sync"
	"time"
)

// The defaults of Options.
const (
	DefaultFailures = 5
	DefaultPause    = time.Second
	DefaultPauseMax = 30 * time.Second
)

// Options say when a Breaker opens and how long it stays so.
type Options struct {
	Failures int           // in a row that open it; 0 = DefaultFailures
	Pause    time.Duration // until the first probe; 0 = DefaultPause. Each probe that fails doubles it
	PauseMax time.Duration // up to this; 0 = DefaultPauseMax
}

// Verdict is what a call has proved.
type Verdict uint8

// The verdicts.
const (
	Nothing Verdict = iota // the call says nothing about health
	Good                   // it works
	Right                  // it works, and the bytes that were read are right
	Wrong                  // the bytes that were read are wrong
	Bad                    // it failed
	Hung                   // it did not answer
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
	o  Options
	mu struct {
		sync.Mutex
		state   state
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

type state uint8

const (
	closed state = iota
	open
	probing // one call is admitted and has not ended
)

// New returns a Breaker that is closed.
func New(o Options) *Breaker {
	if o.Failures == 0 {
		o.Failures = DefaultFailures
	}
	if o.Pause == 0 {
		o.Pause = DefaultPause
	}
	if o.PauseMax == 0 {
		o.PauseMax = DefaultPauseMax
	}
	return &Breaker{o: o}
}

// Pass is the leave to make one call. It must be ended, with Nothing if the
// call is not made after all: until then no other call probes.
type Pass struct {
	turn  uint64
	probe bool
}

// Admit asks for leave to make a call; ok is false if the breaker refuses.
// canProbe says that the success of the call proves that its object works.
func (b *Breaker) Admit(canProbe bool) (p Pass, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.mu.state == closed:
		return Pass{turn: b.mu.turn}, true
	case !canProbe || !b.due():
		b.mu.refused++
		return Pass{}, false
	}
	b.mu.state = probing
	return Pass{turn: b.mu.turn, probe: true}, true
}

// due reports whether a call may probe now; called with the mutex held.
func (b *Breaker) due() bool { return b.mu.state == open && !time.Now().Before(b.mu.probeAt) }

// Change is what the end of a call has changed.
type Change struct {
	Opened bool
	Closed bool
	Pause  time.Duration // Opened: until the first probe
	Off    time.Duration // Closed: for how long it was open
}

// End says how an admitted call went; err is kept for Err if v is a failure.
func (b *Breaker) End(p Pass, v Verdict, err error) Change {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.turn != b.mu.turn {
		return Change{}
	}
	if p.probe {
		return b.endProbe(v, err)
	}
	switch v {
	case Nothing:
		return Change{}
	case Good, Right:
		b.mu.failed = 0
		b.tally(v)
		return Change{}
	case Wrong:
		if !b.tally(v) {
			return Change{}
		}
	case Bad:
		if b.mu.failed++; b.mu.failed < b.o.Failures {
			return Change{}
		}
	case Hung:
	}
	b.mu.turn++
	b.mu.opened++
	b.mu.state, b.mu.failed, b.mu.why = open, 0, err
	b.mu.pause, b.mu.since = b.o.Pause, time.Now()
	b.mu.probeAt = b.mu.since.Add(b.mu.pause)
	return Change{Opened: true, Pause: b.mu.pause}
}

// endProbe is End for the call that probes; called with the mutex held.
func (b *Breaker) endProbe(v Verdict, err error) Change {
	b.mu.state = open
	switch v {
	case Nothing:
		return Change{}
	case Good, Right:
		b.tally(v)
		b.mu.turn++
		b.mu.state, b.mu.why = closed, nil
		return Change{Closed: true, Off: time.Since(b.mu.since)}
	}
	b.mu.why = err
	b.mu.pause = min(2*b.mu.pause, b.o.PauseMax)
	b.mu.probeAt = time.Now().Add(b.mu.pause)
	return Change{}
}

// tally counts payloads that were read, and reports whether too many are wrong;
// called with the mutex held.
func (b *Breaker) tally(v Verdict) bool {
	switch v {
	case Right:
		b.mu.wrong = max(0, b.mu.wrong-1)
	case Wrong:
		b.mu.wrong += wrongWeight
	}
	if v != Wrong || b.mu.wrong < wrongMost*wrongWeight {
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

// Stats is a snapshot of a Breaker.
type Stats struct {
	Open    bool   // open or probing
	Opened  uint64 // times
	Refused uint64 // calls
}

// Stats returns a snapshot.
func (b *Breaker) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{Open: b.mu.state != closed, Opened: b.mu.opened, Refused: b.mu.refused}
}
