package remote

import (
	"context"
	"sync/atomic"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Tier is the remote tier. It is safe for concurrent use. Until Connect has
// succeeded once every call fails with tier.ErrOff.
type Tier struct {
	o       Options
	names   names
	log     zerolog.Logger
	traffic traffic

	client        atomic.Pointer[client] // nil until connected
	closed        atomic.Bool
	unconditional atomic.Bool           // the store knows no conditional puts
	doubts        atomic.Int32          // chunks in succession whose condition was refused
	summed        atomic.Bool           // the store asks for a checksum of its own kind
	readOnly      atomic.Bool           // the credentials may not put
	why           atomic.Pointer[error] // why it is not connected

	login   login
	absent  *absences
	known   *bloom
	retries *allowance
	slow    slowness
	count   counters
}

var (
	_ tier.Shared = (*Tier)(nil)
	_ tier.Health = (*Tier)(nil)
	_ tier.Prober = (*Tier)(nil)
)

// New makes a tier. It does not touch the store: see Connect and Run.
func New(o Options) (*Tier, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &Tier{
		o: o, log: o.Log, names: names{o.Prefix + layout},
		traffic: newTraffic(o.Concurrency, o.FlightBytes),
		absent:  newAbsences(), known: newBloom(),
		retries: newAllowance(retryShare, retrySaved),
	}
	t.login.asked = make(chan struct{}, 1)
	return t, nil
}

// Name implements tier.Tier.
func (t *Tier) Name() string { return "remote" }

// api is the client of a tier that is connected and not closed.
func (t *Tier) api(ctx context.Context) (*client, error) {
	if t.closed.Load() {
		return nil, tier.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	api := t.client.Load()
	if api == nil {
		return nil, tier.ErrOff
	}
	return api, nil
}

// Off reports whether the store has not been reached yet, or is of no use any more.
func (t *Tier) Off() bool { return t.client.Load() == nil }

// Trouble implements tier.Health.
func (t *Tier) Trouble() error {
	switch why := t.why.Load(); {
	case t.Off() && why != nil:
		return *why
	case t.Off():
		return errUntried
	case t.readOnly.Load():
		return errReadOnly
	}
	return nil
}

// usable fails if no request could be made.
func (t *Tier) usable(ctx context.Context, op string) error {
	if _, err := t.api(ctx); err != nil {
		return &Error{Op: op, Err: err}
	}
	return nil
}

// Contains implements tier.Tier: one HEAD for each key that was not absent a
// moment ago. Whole chains are cheaper to Find.
func (t *Tier) Contains(ctx context.Context, ks []key.Key, have []bool) error {
	return t.each(ctx, "contains", ks, have, t.exists)
}

// each asks about all keys, as many at a time as reads may be under way.
func (t *Tier) each(ctx context.Context, op string, ks []key.Key, is []bool, ask func(context.Context, key.Key) (bool, error)) error {
	if err := t.usable(ctx, op); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(t.o.Concurrency)
	for i, k := range ks {
		g.Go(func() (err error) {
			is[i], err = ask(ctx, k)
			return err
		})
	}
	return g.Wait()
}

// exists asks about one key, itself first.
func (t *Tier) exists(ctx context.Context, k key.Key) (bool, error) {
	if t.absent.has(k) {
		return false, nil
	}
	out, err := t.head(ctx, reads, k)
	if err == nil && out == nil {
		t.absent.add(k)
	}
	return out != nil, err
}

// Absent implements tier.Shared.
func (t *Tier) Absent(k key.Key) bool { return t.absent.has(k) }

// Close implements tier.Tier. Requests under way go on.
func (t *Tier) Close() error {
	t.closed.Store(true)
	if c := t.client.Load(); c != nil {
		c.closeIdle()
	}
	return nil
}
