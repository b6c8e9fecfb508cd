package tier

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/key"
)

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
