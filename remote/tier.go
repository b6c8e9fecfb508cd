package remote

import (
	"context"
	"sync/atomic"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

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

// counters are the requests, their bytes and their outcomes.
type counters struct {
	found, foundBytes   atomic.Uint64
	stored, storedBytes atomic.Uint64
	corrupt             atomic.Uint64

	gets, puts, heads, lists, deletes atomic.Uint64 // requests
	received, sent, wasted            atomic.Uint64 // body bytes; wasted: moved for nothing
	present                           atomic.Uint64 // puts of what was there
	otherBytes                        atomic.Uint64 // of those, with another checksum
	occupied                          atomic.Uint64 // puts whose name something else had
	stale                             atomic.Uint64 // gets of what was thought to be there
	retries                           atomic.Uint64
	slowDowns                         atomic.Uint64
	connectFailed                     atomic.Uint64
}

// Stats implements tier.Tier. Entries and their bytes are 0: other machines
// store and delete too, and only a listing could tell.
func (t *Tier) Stats() tier.Stats {
	c := &t.count
	return tier.Stats{
		Gets: c.found.Load(), GetBytes: c.foundBytes.Load(),
		Puts: c.stored.Load(), PutBytes: c.storedBytes.Load(),
		Corrupt: c.corrupt.Load(), Off: t.Off(),
		Counters: map[string]uint64{
			"get_requests": c.gets.Load(), "put_requests": c.puts.Load(), "head_requests": c.heads.Load(),
			"list_requests": c.lists.Load(), "delete_requests": c.deletes.Load(),
			"received_bytes": c.received.Load(), "sent_bytes": c.sent.Load(), "wasted_bytes": c.wasted.Load(),
			"puts_present": c.present.Load(), "puts_other_bytes": c.otherBytes.Load(), "puts_occupied": c.occupied.Load(),
			"gets_stale": c.stale.Load(),
			"retries":    c.retries.Load(),
			"slow_downs": c.slowDowns.Load(), "connect_failures": c.connectFailed.Load(),
		},
	}
}

// writeShare: writes have half of what reads have, on top of it: no client waits for
// them.
const writeShare = 2

// direction is where payloads go.
type direction uint8

const (
	reads direction = iota
	writes
	directions
)

// traffic bounds requests in flight. Reads and writes share nothing: a read may
// wait for memory that only a write frees.
type traffic [directions]*lane

// lane bounds one direction. Requests are taken before bytes, so that a holder of
// bytes waits for the store alone.
type lane struct {
	requests, bytes *semaphore.Weighted
	most            int64 // bytes
}

func newTraffic(requests int, bytes int64) traffic {
	return traffic{
		reads:  newLane(int64(requests), bytes),
		writes: newLane(max(1, int64(requests)/writeShare), max(1, bytes/writeShare)),
	}
}

func newLane(requests, bytes int64) *lane {
	return &lane{semaphore.NewWeighted(requests), semaphore.NewWeighted(bytes), bytes}
}

// enter waits until a request with n bytes to send may go; leave ends it.
func (l *lane) enter(ctx context.Context, n int) error {
	if err := l.requests.Acquire(ctx, 1); err != nil {
		return err
	}
	if err := l.carry(ctx, n); err != nil {
		l.requests.Release(1)
		return err
	}
	return nil
}

func (l *lane) leave(n int) {
	l.carried(n)
	l.requests.Release(1)
}

// carry waits until n bytes may move, for a request that has entered; carried
// ends that. A payload larger than all that may fly flies alone.
func (l *lane) carry(ctx context.Context, n int) error {
	if n == 0 {
		return nil // and not behind those who have something to carry
	}
	return l.bytes.Acquire(ctx, min(int64(n), l.most))
}

func (l *lane) carried(n int) { l.bytes.Release(min(int64(n), l.most)) }
