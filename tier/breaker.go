package tier

import (
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

// ErrHung is the failure of a tier that answers nobody: one opens a breaker.
var ErrHung = errors.New("does not answer")

// BreakerOptions say when a tier in trouble is left alone, and how long.
type BreakerOptions struct {
	Failures int           // in a row that open the breaker; 0 = 5
	Pause    time.Duration // until the first probe; 0 = 1 s. Each probe that fails doubles it
	PauseMax time.Duration // up to this; 0 = 30 s
	// Timeout bounds each call of a tier that does not itself answer ErrHung
	// in time; 0 = none. It covers what a Get waits for memory.
	Timeout time.Duration
	Log     zerolog.Logger
}

// WithBreaker returns t behind a breaker, which keeps a tier in trouble out of
// everybody's way: after some failures in a row, or one ErrHung, calls fail
// with ErrOff at once. After a pause one call at a time is let through as a
// probe; the first that succeeds ends it.
//
// What a tier that works says as well is no failure: a miss, no room, or a
// context that ended; nor are wrong bytes, unless they come again and again; nor is what the Allocator of a Get says. Of a bounded tier Contains is memory only
// and always let through, and only Get, Put and Sync can probe: the others
// may succeed without the device. Recover has pauses of its own.
//
// The result is a Resident, a Recoverer or a Shared exactly if t is.
func WithBreaker(t Tier, o BreakerOptions) Tier {
	orDuration := func(p *time.Duration, d time.Duration) {
		if *p == 0 {
			*p = d
		}
	}
	if o.Failures == 0 {
		o.Failures = 5
	}
	orDuration(&o.Pause, time.Second)
	orDuration(&o.PauseMax, 30*time.Second)
	b := &breaker{Tier: t, o: o}
	res, bounded := t.(Resident)
	rec, lasting := t.(Recoverer)
	b.bounded = bounded
	if far, ok := t.(Shared); ok && !bounded && !lasting {
		return struct {
			*breaker
			breakerSharing
		}{b, breakerSharing{b, far}}
	}
	switch {
	case bounded && lasting:
		return struct {
			*breaker
			breakerResidency
			breakerRecovery
		}{b, breakerResidency{b, res}, breakerRecovery{b, rec}}
	case bounded:
		return struct {
			*breaker
			breakerResidency
		}{b, breakerResidency{b, res}}
	case lasting:
		return struct {
			*breaker
			breakerRecovery
		}{b, breakerRecovery{b, rec}}
	}
	return b
}

// breaker is the part that every tier has. Its mutex is a leaf.
type breaker struct {
	Tier
	o       BreakerOptions
	bounded bool

	mu struct {
		sync.Mutex
		open    bool
		probing bool          // one call is through
		turn    uint64        // counts openings and closings: verdicts of calls begun before are void
		failed  int           // in a row, while closed
		wrong   int           // see tally
		pause   time.Duration // of now, while open
		since   time.Time
		probeAt time.Time // when a probe may go
		why     error     // what opened it, or failed a probe
		opened  uint64
		refused uint64
	}
}

// pass is the leave to make one call.
type pass struct {
	turn  uint64
	probe bool
}

// Off reports whether a call would be refused now.
func (b *breaker) Off() bool {
	if isOff(b.Tier) {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.open && (b.mu.probing || time.Now().Before(b.mu.probeAt))
}

// ProbeNow lets the next call probe, however long the pause still lasts.
func (b *breaker) ProbeNow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.probeAt = time.Now()
}

// admit lets a call pass, or refuses it. canProbe says that its success
// proves that the tier works.
func (b *breaker) admit(op string, canProbe bool) (pass, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.mu.open {
		return pass{turn: b.mu.turn}, nil
	}
	if !canProbe || b.mu.probing || time.Now().Before(b.mu.probeAt) {
		b.mu.refused++
		return pass{}, fmt.Errorf("%s: %s: %w", b.Name(), op, ErrOff)
	}
	b.mu.probing = true
	return pass{turn: b.mu.turn, probe: true}, nil
}

// A tier that returns wrong bytes now and then has lost an entry; one that does
// so again and again is in trouble. Each wrong payload counts as much as
// wrongWeight right ones, and wrongMost of them, less the right ones, open the
// breaker: from one in nine on, sooner or later.
const (
	wrongWeight = 8
	wrongMost   = 16
)

// tally counts wrong payloads, and reports whether there are too many. Called
// with the mutex held.
func (b *breaker) tally(v verdict) bool {
	switch v {
	case provesRight:
		b.mu.wrong = max(0, b.mu.wrong-1)
	case provesWrong:
		b.mu.wrong += wrongWeight
	}
	if v != provesWrong || b.mu.wrong < wrongMost*wrongWeight {
		return false
	}
	b.mu.wrong /= 2 // the next time it takes less
	return true
}

// verdict is what a call proves about its tier.
type verdict uint8

const (
	provesNothing verdict = iota
	provesGood
	provesRight // good, and of the bytes that were read too
	provesWrong // the bytes
	provesBad
	provesHung
)

func (b *breaker) judge(ctx context.Context, err error) verdict {
	switch {
	case err == nil:
		return provesGood
	case errors.Is(err, errMemory):
		return provesNothing
	case errors.Is(err, ErrHung):
		return provesHung
	case errors.Is(err, ErrCorrupt):
		return provesWrong
	case ctx.Err() != nil:
		return provesNothing
	case errors.Is(err, ErrNotFound) && !b.bounded:
		return provesGood // somebody had to be asked
	}
	for _, fine := range noTrouble {
		if errors.Is(err, fine) {
			return provesNothing
		}
	}
	return provesBad
}

// noTrouble is what a tier in good health says too.
var noTrouble = []error{
	ErrNotFound, ErrNoSpace, ErrTooLarge, ErrClosed, ErrOverBudget, ErrOverQuota, ErrInconsistent, ErrOff,
	context.Canceled,
}

// settle draws the conclusions from a call that was let pass.
func (b *breaker) settle(p pass, v verdict, err error) {
	switch was, open, changed := b.count(p, v, err); {
	case changed && open:
		b.o.Log.Error().Err(err).Str("tier", b.Name()).Stringer("probe_in", b.o.Pause).
			Msg("tier is switched off after failures; everything goes on without it until it works again")
	case changed:
		b.o.Log.Info().Str("tier", b.Name()).Stringer("was_off", was.Round(time.Millisecond)).Msg("tier works again")
	}
}

// count reports whether the breaker opened or closed, and for how long it was open.
func (b *breaker) count(p pass, v verdict, err error) (was time.Duration, open, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.turn != b.mu.turn {
		return 0, b.mu.open, false
	}
	if p.probe {
		b.mu.probing = false
	}
	switch {
	case v == provesWrong && !p.probe:
		changed = b.tally(v)
	case v == provesNothing:
	case v == provesGood || v == provesRight:
		b.tally(v)
		b.mu.failed = 0
		changed = p.probe
	case p.probe:
		b.mu.why = err
		b.mu.pause = min(2*b.mu.pause, b.o.PauseMax)
		b.mu.probeAt = time.Now().Add(b.mu.pause)
	default:
		b.mu.failed++
		changed = v == provesHung || b.mu.failed >= b.o.Failures
	}
	if !changed {
		return 0, b.mu.open, false
	}
	b.mu.turn++
	b.mu.open = !p.probe
	if b.mu.why = err; b.mu.open {
		b.mu.opened++
		b.mu.pause, b.mu.since = b.o.Pause, time.Now()
		b.mu.probeAt = b.mu.since.Add(b.mu.pause)
	}
	return time.Since(b.mu.since), b.mu.open, true
}

// guard makes a call whose success proves something only if canProbe.
func (b *breaker) guard(ctx context.Context, op string, canProbe bool, call func(context.Context) error) error {
	p, err := b.admit(op, canProbe)
	if err != nil {
		return err
	}
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if b.o.Timeout > 0 {
		bounded, cancel = context.WithTimeoutCause(ctx, b.o.Timeout, ErrHung)
	}
	defer cancel()
	err = call(bounded)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil && !errors.Is(err, errMemory) {
		err = fmt.Errorf("%w within %v: %w", ErrHung, b.o.Timeout, err)
	}
	v := b.judge(ctx, err)
	switch {
	case v == provesGood && !canProbe:
		v = provesNothing
	case v == provesGood && op == "get":
		v = provesRight
	}
	b.settle(p, v, err)
	return err
}

func (b *breaker) Contains(ctx context.Context, ks []key.Key, have []bool) error {
	if b.bounded {
		return b.Tier.Contains(ctx, ks, have)
	}
	return b.guard(ctx, "contains", true, func(ctx context.Context) error { return b.Tier.Contains(ctx, ks, have) })
}

func (b *breaker) Get(ctx context.Context, k key.Key, a Allocator) (block arena.Block, err error) {
	err = b.guard(ctx, "get", true, func(ctx context.Context) (err error) {
		room := &room{Allocator: a}
		if block, err = b.Tier.Get(ctx, k, room); err != nil && room.refused.Load() {
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

func (b *breaker) Put(ctx context.Context, e Entry) error {
	return b.guard(ctx, "put", true, func(ctx context.Context) error { return b.Tier.Put(ctx, e) })
}

func (b *breaker) Delete(ctx context.Context, ks []key.Key) error {
	return b.guard(ctx, "delete", !b.bounded, func(ctx context.Context) error { return b.Tier.Delete(ctx, ks) })
}

// Stats adds what the breaker counts.
func (b *breaker) Stats() Stats {
	st := b.Tier.Stats()
	if st.Counters == nil {
		st.Counters = make(map[string]uint64)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	st.Off = st.Off || b.mu.open
	st.Counters["switched_off"] = b.mu.opened
	st.Counters["refused_while_off"] = b.mu.refused
	return st
}

// Unwrap returns the tier behind the breaker.
func (b *breaker) Unwrap() Tier { return b.Tier }

// breakerResidency is what a bounded tier adds.
type breakerResidency struct {
	b  *breaker
	to Resident
}

func (r breakerResidency) Has(k key.Key) bool { return r.to.Has(k) }

func (r breakerResidency) Touch(ks []key.Key) { r.to.Touch(ks) }

func (r breakerResidency) Trim(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	err := r.b.guard(ctx, "trim", false, func(ctx context.Context) (err error) {
		out, err = r.to.Trim(ctx, n, out)
		return err
	})
	return out, err
}

// breakerRecovery is what a tier that outlives the process adds.
type breakerRecovery struct {
	b  *breaker
	to Recoverer
}

func (r breakerRecovery) Recover(ctx context.Context, emit func([]Record)) error {
	return r.to.Recover(ctx, emit)
}

func (r breakerRecovery) Sync(ctx context.Context) error {
	return r.b.guard(ctx, "sync", true, func(ctx context.Context) error { return r.to.Sync(ctx) })
}

// breakerSharing is what a shared tier adds.
type breakerSharing struct {
	b  *breaker
	to Shared
}

func (r breakerSharing) Absent(k key.Key) bool { return r.to.Absent(k) }

func (r breakerSharing) Find(ctx context.Context, ks []key.Key, found func(int)) (n int, err error) {
	err = r.b.guard(ctx, "find", true, func(ctx context.Context) (err error) {
		n, err = r.to.Find(ctx, ks, found)
		return err
	})
	return n, err
}

func (r breakerSharing) Purge(ctx context.Context, id key.SpaceID, after string, dry bool, gone func(key.Key)) (p Purged, err error) {
	err = r.b.guard(ctx, "purge", true, func(ctx context.Context) (err error) {
		p, err = r.to.Purge(ctx, id, after, dry, gone)
		return err
	})
	return p, err
}

// isOff reports whether a tier is switched off.
func isOff(t Tier) bool {
	b, ok := under[interface{ Off() bool }](t)
	return ok && b.Off()
}

// off is the tiers that are switched off.
func (s *Stack) off() (set Set) {
	for p := Disk; p < Places; p++ {
		if s.tiers[p] != nil && isOff(s.tiers[p]) {
			set |= Of(p)
		}
	}
	return set
}
