package resp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

const (
	syntaxError = "ERR syntax error"
	noInteger   = "ERR value is not an integer or out of range"
)

// lookup leases a value. What the client has not read yet of earlier replies
// counts against its share of the leases: then it is waited for.
func (c *session) lookup(ctx context.Context, name []byte) (Value, bool) {
	v, err := c.server.o.Store.Get(ctx, c.owner, name)
	if errors.Is(err, ErrNoRoom) && c.out.drain() {
		v, err = c.server.o.Store.Get(ctx, c.owner, name)
	}
	if err != nil {
		c.server.count.misses.Add(1)
		return v, false
	}
	c.server.count.hits.Add(1)
	return v, true
}

func doGet(c *session, ctx context.Context) { c.get(ctx, c.args[0]) }

func (c *session) get(ctx context.Context, name []byte) {
	if v, found := c.lookup(ctx, name); found {
		c.out.value(v)
	} else {
		c.out.null()
	}
}

// doMget answers one name after the other. Values below DRAM come up meanwhile, in
// their order.
func doMget(c *session, ctx context.Context) {
	c.out.array(len(c.args))
	for i := 1; i < len(c.args) && !c.closing.Load(); i++ {
		c.server.o.Store.Has(ctx, c.args[i])
	}
	for _, name := range c.args {
		if c.quit = c.quit || c.closing.Load(); c.quit { // in the middle of the reply
			return
		}
		c.get(ctx, name)
	}
}

func doStrlen(c *session, ctx context.Context) {
	v, found := c.lookup(ctx, c.args[0])
	if !found {
		c.out.integer(0)
		return
	}
	c.out.integer(int64(len(v.Bytes())))
	v.Release()
}

// doTTL answers how long a value has, rounded as Redis does: -1 for ever, -2 if
// there is none.
func doTTL(c *session, ctx context.Context) {
	v, found := c.lookup(ctx, c.args[0])
	if !found {
		c.out.integer(-2)
		return
	}
	defer v.Release()
	if v.Expires().IsZero() {
		c.out.integer(-1)
		return
	}
	c.out.integer(int64((max(0, time.Until(v.Expires())) + time.Second/2) / time.Second))
}

func doExists(c *session, ctx context.Context) {
	n := 0
	for _, name := range c.args {
		if c.cutShort() {
			return
		}
		if c.server.o.Store.Has(ctx, name) {
			n++
		}
	}
	c.out.integer(int64(n))
}

func doDel(c *session, ctx context.Context) {
	n := 0
	for _, name := range c.args {
		if c.cutShort() {
			return
		}
		had, err := c.server.o.Store.Delete(ctx, name)
		if err != nil {
			c.server.trouble.Warn().Err(err).Msg("a Redis client's keys were not all deleted")
			c.fail("ERR not deleted: the tiers below do not answer, and it could not be noted")
			return
		}
		if had {
			n++
		}
	}
	c.out.integer(int64(n))
}

// doSet stores one value: SET key value [NX|XX] [EX s|PX ms].
func doSet(c *session, ctx context.Context) {
	var when When
	var lasts time.Duration
	for i := 2; i < len(c.args); i++ {
		switch option := strings.ToLower(string(c.args[i])); {
		case option == "nx" && when == Always:
			when = Absent
		case option == "xx" && when == Always:
			when = Present
		case (option == "ex" || option == "px") && lasts == 0 && i+1 < len(c.args):
			i++
			unit, wrong := time.Millisecond, ""
			if option == "ex" {
				unit = time.Second
			}
			if lasts, wrong = readExpiry(c.args[i], unit, "set"); wrong != "" {
				c.fail("%s", wrong)
				return
			}
		default:
			c.fail(syntaxError)
			return
		}
	}
	c.set(ctx, when, lasts)
}

// doSetex stores one value: SETEX key s value.
func doSetex(c *session, ctx context.Context) {
	lasts, wrong := readExpiry(c.args[1], time.Second, "setex")
	if wrong != "" {
		c.fail("%s", wrong)
		return
	}
	c.set(ctx, Always, lasts)
}

// readExpiry reads how long a value lasts. A wrong one has an error reply.
func readExpiry(arg []byte, unit time.Duration, command string) (lasts time.Duration, wrong string) {
	n, ok := number(arg)
	if !ok {
		return 0, noInteger
	}
	if n <= 0 || n > math.MaxInt64/int64(unit) {
		return 0, "ERR invalid expire time in '" + command + "' command"
	}
	return time.Duration(n) * unit, ""
}

// set answers for the value that came with a command. It lasts so long; 0 = for ever.
func (c *session) set(ctx context.Context, when When, lasts time.Duration) {
	var expires time.Time
	if lasts > 0 {
		expires = time.Now().Add(lasts)
	}
	switch stored, err := c.store(ctx, 0, when, expires); {
	case err != nil && c.mute:
		c.drop(ctx, when, err)
	case err != nil:
		c.refuseValue(err)
	case stored:
		c.out.simple("OK")
	default:
		c.out.null()
	}
}

// drop answers for a value that is not kept where no error may be answered: OK
// when it is certain that the name has no value, as if it had been evicted at
// once. A condition was not met as far as its client can tell, and null says so.
func (c *session) drop(ctx context.Context, when When, why error) {
	c.server.count.dropped[reasonOf(why)].Add(1)
	c.server.trouble.Warn().Err(why).Stringer("reason", reasonOf(why)).Msg("a Redis client's value is dropped; it will be missed")
	if when != Always {
		c.out.null()
		return
	}
	if _, err := c.server.o.Store.Delete(ctx, c.args[0]); err != nil {
		c.fail("ERR %v", err)
		return
	}
	c.out.simple("OK")
}

func doMset(c *session, ctx context.Context) {
	if len(c.args)%2 != 0 {
		c.fail("ERR wrong number of arguments for 'mset' command")
		return
	}
	// The last one first: it is the one that may go first.
	var failed error
	later := make(map[string]struct{}, len(c.fills))
	for i := len(c.fills) - 1; i >= 0; i-- {
		if c.cutShort() {
			return
		}
		name := string(c.args[2*i])
		if _, again := later[name]; again {
			continue // its last value counts
		}
		later[name] = struct{}{}
		if _, err := c.store(ctx, i, Always, time.Time{}); err != nil {
			failed = err
		}
	}
	if failed != nil {
		c.refuseValue(failed)
		return
	}
	c.out.simple("OK")
}

// fill is a value that came with a command.
type fill struct {
	*Fill // nil if there was no room, or once it was stored
	err   error
}

// fill reads a value of n bytes. If there is no room for it that is its error,
// and the value is passed over.
func (c *session) fill(name []byte, n int) error {
	f, err := c.server.o.Store.Begin(c.ctx, c.owner, name, n)
	if err != nil && c.ctx.Err() == nil && errors.Is(err, ErrNoRoom) && c.out.drain() {
		f, err = c.server.o.Store.Begin(c.ctx, c.owner, name, n)
	}
	c.fills = append(c.fills, fill{f, err})
	if err != nil {
		return c.in.discard(n)
	}
	if err := c.in.full(f.Value(), f.Arrived); err != nil {
		return err
	}
	return c.in.end()
}

// abort gives up the fills that were not stored.
func abort(fills []fill) {
	for _, f := range fills {
		if f.Fill != nil {
			f.Abort()
		}
	}
}

// store stores a value that came with the command.
func (c *session) store(ctx context.Context, i int, when When, expires time.Time) (stored bool, err error) {
	f := &c.fills[i]
	if f.err != nil {
		return false, f.err
	}
	stored, err = f.Store(ctx, when, expires)
	f.Fill = nil
	if stored {
		c.server.count.stored.Add(1)
	}
	return stored, err
}

// refuseValue answers why a value is not stored.
func (c *session) refuseValue(err error) {
	switch {
	case errors.Is(err, ErrTooLarge):
		c.fail("ERR the name or the value is too large: a name may have 16 KiB, both together 64 MiB, and they must fit the DRAM of this daemon")
	case errors.Is(err, ErrNoRoom):
		c.fail("OOM there is no room for this value now, or all that this connection has under way exceeds its share (0.4 of DRAM, half of it while others are connected)")
	default:
		c.server.trouble.Warn().Err(err).Msg("a Redis client's value was not stored")
		c.fail("ERR the value was not stored: the tiers below do not answer")
	}
}

// Value is a stored value, leased until Release.
type Value struct {
	store *Store
	owner ledger.Owner
	ref   tier.Ref
	header
}

// Bytes is the value where it lies; it is read only.
func (v *Value) Bytes() []byte { return v.value }

// Expires is when the value expires; the zero time is never.
func (v *Value) Expires() time.Time {
	if v.expires == 0 {
		return time.Time{}
	}
	return time.UnixMilli(v.expires)
}

// Release ends the lease.
func (v *Value) Release() {
	v.store.o.Tiers.Leases.Release(v.owner, ledger.Lease, []tier.Ref{v.ref})
	*v = Value{}
}

// Get leases the value of name to o. If it must be promoted first, that may take
// the store's LoadTimeout. The error is ErrNotFound for everything that makes
// it a miss, ErrNoRoom among it if that is why.
func (s *Store) Get(ctx context.Context, o ledger.Owner, name []byte) (Value, error) {
	h := hashOf(name)
	if s.debts.owes(h) {
		return Value{}, fmt.Errorf("%w: %w", ErrNotFound, ErrOwed)
	}
	var p place
	p.at(h)
	ref, err := s.lease(ctx, o, &p)
	if err != nil {
		return Value{}, err
	}
	v := Value{store: s, owner: o, ref: ref}
	if !v.parse(ref.Block.Bytes()) || !v.of(name, time.Now()) {
		v.Release()
		return Value{}, ErrNotFound
	}
	s.o.Tiers.Planning.Observe(&p.Chain, store.Prompt{})
	s.o.Tiers.Leases.Touch(&p.Chain, 0, 1)
	return v, nil
}

// lease leases the value at p, out of DRAM or promoted. A value that is replaced on
// its way fails to arrive and is looked for once more.
func (s *Store) lease(ctx context.Context, o ledger.Owner, p *place) (tier.Ref, error) {
	var refs [1]tier.Ref
	n, err := s.o.Tiers.Leases.Hold(o, ledger.Lease, &p.Chain, 0, 1, refs[:])
	switch {
	case err != nil:
		return tier.Ref{}, fmt.Errorf("%w: %w: %w", ErrNotFound, ErrNoRoom, err)
	case n == 1:
		return refs[0], nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.patience.Load()))
	defer cancel()
	for range 2 {
		if m, merr := s.o.Tiers.Lookups.Match(ctx, &p.Chain, tier.All); merr != nil || m.Chunks == 0 {
			return tier.Ref{}, ErrNotFound
		}
		var ref tier.Ref
		if ref, _, err = s.o.Tiers.Loader.Load(ctx, store.Requester{Owner: o}, &p.Chain, 0, tier.All); err == nil {
			return ref, nil
		}
	}
	if errors.Is(err, tier.ErrNoSpace) || errors.Is(err, tier.ErrOverBudget) {
		return tier.Ref{}, fmt.Errorf("%w: %w: %w", ErrNotFound, ErrNoRoom, err)
	}
	return tier.Ref{}, fmt.Errorf("%w: %w", ErrNotFound, err)
}

// Has reports whether name has a value, without waiting for a promotion.
// The value is kept in DRAM, or promoted and kept, for a moment: the caller will
// want it next. A value that has expired counts until it is promoted.
func (s *Store) Has(ctx context.Context, name []byte) bool {
	h := hashOf(name)
	has := s.has(ctx, name, h)
	if has {
		s.keep(h)
	}
	return has
}

func (s *Store) has(ctx context.Context, name []byte, h key.Hash) bool {
	if s.debts.owes(h) {
		return false
	}
	var p place
	p.at(h)
	var refs [1]tier.Ref
	if n, _ := s.o.Tiers.Leases.Hold(ledger.Daemon, ledger.IO, &p.Chain, 0, 1, refs[:]); n == 1 {
		defer s.o.Tiers.Leases.Release(ledger.Daemon, ledger.IO, refs[:])
		var hd header
		return hd.parse(refs[0].Block.Bytes()) && hd.of(name, time.Now())
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	m, err := s.o.Tiers.Lookups.Match(ctx, &p.Chain, tier.All)
	return err == nil && m.Chunks > 0
}
