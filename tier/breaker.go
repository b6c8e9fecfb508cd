package tier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/key"
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

// ErrHung is the failure of a tier that does not answer: one opens a breaker.
var ErrHung = errors.New("does not answer")

// Observer is told how long an operation of a tier took that succeeded. It
// may be called concurrently.
type Observer func(op string, took time.Duration)

// WithBreaker returns t behind a breaker, which keeps a tier in trouble out of
// the way: after some failures in a row, or one ErrHung, calls fail
// with ErrOff at once. After a pause one call at a time is let through as a
// probe; the first that succeeds ends it. See Breaker.
//
// What a tier that works says as well is no failure: a miss, no room, or a
// context that ended; nor are wrong bytes, unless they come again and again; nor
// is what the Allocator of a Get says. Of a bounded tier Contains is memory only
// and always let through, and only Get, Put and Sync can probe: the others
// may succeed without the device. Recover has pauses of its own.
//
// The result has the roles of t: see RolesOf.
func WithBreaker(t Tier, o BreakerOptions) Tier {
	return &guarded{Tier: t, inner: RolesOf(t), state: NewBreaker(o), observe: o.Observe, log: o.Log}
}

// guarded is a tier behind a breaker.
type guarded struct {
	Tier
	inner   Roles
	state   *Breaker
	observe Observer
	log     zerolog.Logger
}

// Roles implements decorator.
func (g *guarded) Roles() Roles {
	r := g.inner
	if r.Resident != nil {
		r.Resident = guardedResident{r.Resident, g}
	}
	if r.Recoverer != nil {
		r.Recoverer = guardedRecoverer{r.Recoverer, g}
	}
	if r.Shared != nil {
		r.Shared = guardedShared{r.Shared, g}
	}
	r.Health, r.Prober = g, g
	return r
}

// Off implements Health.
func (g *guarded) Off() bool { return g.inner.Off() || g.state.Refuses() }

// Trouble implements Health: why the tier behind is off, or what opened the
// breaker, or what the last probe failed over.
func (g *guarded) Trouble() error {
	if h := g.inner.Health; h != nil {
		if err := h.Trouble(); err != nil {
			return err
		}
	}
	return g.state.Err()
}

// ProbeNow implements Prober.
func (g *guarded) ProbeNow() {
	g.state.ProbeNow()
	if p := g.inner.Prober; p != nil {
		p.ProbeNow()
	}
}

// judge is what the end of a call proves about the tier.
func (g *guarded) judge(ctx context.Context, err error) Verdict {
	var dropped *DroppedError
	switch {
	case err == nil, errors.As(err, &dropped) && dropped.Err == nil:
		return CallGood
	case errors.Is(err, errMemory):
		return CallNothing
	case errors.Is(err, ErrHung):
		return CallHung
	case errors.Is(err, ErrCorrupt):
		return CallWrong
	case ctx.Err() != nil:
		return CallNothing
	case errors.Is(err, ErrNotFound) && g.inner.Resident == nil:
		return CallGood // the device had to be asked
	}
	for _, fine := range noTrouble {
		if errors.Is(err, fine) {
			return CallNothing
		}
	}
	return CallBad
}

// noTrouble is what a tier in good health says too.
var noTrouble = []error{
	ErrNotFound, ErrNoSpace, ErrTooLarge, ErrClosed, ErrOverBudget, ErrOverQuota, ErrOff,
	context.Canceled,
}

// logChange logs what the end of a call has changed.
func (g *guarded) logChange(c BreakerChange, err error) {
	switch {
	case c.Opened:
		g.log.Error().Err(err).Str("tier", g.Name()).Stringer("probe_in", c.Pause).
			Msg("tier is switched off after failures; everything goes on without it until it works again")
	case c.Closed:
		g.log.Info().Str("tier", g.Name()).Stringer("was_off", c.Off.Round(time.Millisecond)).Msg("tier works again")
	}
}

// call makes a call whose success proves something only if canProbe.
func (g *guarded) call(ctx context.Context, op string, canProbe bool, call func() error) error {
	pass, ok := g.state.Admit(canProbe)
	if !ok {
		return fmt.Errorf("%s: %s: %w", g.Name(), op, ErrOff)
	}
	err := call()
	v := g.judge(ctx, err)
	switch {
	case v == CallGood && !canProbe:
		v = CallNothing
	case v == CallGood && op == "get":
		v = CallRight
	}
	g.logChange(g.state.End(pass, v, err), err)
	return err
}

// timed is call, told to the observer.
func (g *guarded) timed(ctx context.Context, op string, canProbe bool, call func() error) error {
	begun := time.Now()
	err := g.call(ctx, op, canProbe, call)
	if err == nil && g.observe != nil {
		g.observe(op, time.Since(begun))
	}
	return err
}

func (g *guarded) Contains(ctx context.Context, ks []key.Key, have []bool) error {
	if g.inner.Resident != nil {
		return g.Tier.Contains(ctx, ks, have)
	}
	return g.call(ctx, "contains", true, func() error { return g.Tier.Contains(ctx, ks, have) })
}

func (g *guarded) Get(ctx context.Context, k key.Key, a Allocator) (block arena.Block, err error) {
	err = g.timed(ctx, "get", true, func() (err error) {
		room := &room{Allocator: a}
		if block, err = g.Tier.Get(ctx, k, room); err != nil && room.refused.Load() {
			err = fmt.Errorf("%w: %w", errMemory, err)
		}
		return err
	})
	return block, err
}

// errMemory is a Get that failed for want of memory: no fault of the tier's.
var errMemory = errors.New("no memory to read into")

// room is an Allocator that remembers whether it refused.
type room struct {
	Allocator
	refused atomic.Bool
}

func (r *room) Alloc(ctx context.Context, n int) (arena.Block, error) {
	b, err := r.Allocator.Alloc(ctx, n)
	r.refused.Store(err != nil)
	return b, err
}

func (g *guarded) Put(ctx context.Context, e Entry) error {
	return g.timed(ctx, "put", true, func() error { return g.Tier.Put(ctx, e) })
}

func (g *guarded) Delete(ctx context.Context, ks []key.Key) error {
	return g.timed(ctx, "delete", g.inner.Resident == nil, func() error { return g.Tier.Delete(ctx, ks) })
}

// Stats adds what the breaker counts.
func (g *guarded) Stats() Stats {
	st, b := g.Tier.Stats(), g.state.Stats()
	if st.Counters == nil {
		st.Counters = make(map[string]uint64)
	}
	st.Off = st.Off || b.Open
	st.Counters["switched_off"] = b.Opened
	st.Counters["refused_while_off"] = b.Refused
	return st
}

// guardedResident is the Resident behind a breaker.
type guardedResident struct {
	Resident
	g *guarded
}

func (r guardedResident) Trim(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	begun, before := time.Now(), len(out)
	err := r.g.call(ctx, "trim", false, func() (err error) {
		out, err = r.Resident.Trim(ctx, n, out)
		return err
	})
	if err == nil && len(out) > before && r.g.observe != nil {
		r.g.observe("trim", time.Since(begun))
	}
	return out, err
}

// guardedRecoverer is the Recoverer behind a breaker.
type guardedRecoverer struct {
	Recoverer
	g *guarded
}

func (r guardedRecoverer) Sync(ctx context.Context) error {
	return r.g.timed(ctx, "sync", true, func() error { return r.Recoverer.Sync(ctx) })
}

// guardedShared is the Shared behind a breaker.
type guardedShared struct {
	Shared
	g *guarded
}

func (r guardedShared) Find(ctx context.Context, ks []key.Key, found func(int)) (n int, err error) {
	err = r.g.timed(ctx, "find", true, func() (err error) {
		n, err = r.Shared.Find(ctx, ks, found)
		return err
	})
	return n, err
}

func (r guardedShared) Renewed(ctx context.Context, ks []key.Key, is []bool) error {
	return r.g.call(ctx, "renewed", true, func() error { return r.Shared.Renewed(ctx, ks, is) })
}

func (r guardedShared) Purge(ctx context.Context, id key.SpaceID, after string, dry bool, gone func(key.Key)) (p Purged, err error) {
	err = r.g.call(ctx, "purge", true, func() (err error) {
		p, err = r.Shared.Purge(ctx, id, after, dry, gone)
		return err
	})
	return p, err
}
