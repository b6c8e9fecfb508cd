package resp

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kvstored/kvstored/internal/blob"
)

const (
	syntaxError = "ERR syntax error"
	noInteger   = "ERR value is not an integer or out of range"
)

// lookup leases a value. What the client has not read yet of earlier replies
// counts against its share of the leases: then it is waited for.
func (c *session) lookup(ctx context.Context, name []byte) (blob.Value, bool) {
	return c.lookupBy(func() (blob.Value, error) { return c.server.o.Store.Get(ctx, c.owner, name) })
}

// lookupBy is lookup by a call that leases the value.
func (c *session) lookupBy(get func() (blob.Value, error)) (blob.Value, bool) {
	v, err := get()
	if errors.Is(err, blob.ErrNoRoom) && c.out.drain() {
		v, err = get()
	}
	if err != nil {
		c.server.count.misses.Add(1)
		return v, false
	}
	c.server.count.hits.Add(1)
	return v, true
}

func doGet(c *session, ctx context.Context) {
	c.answer(func() (blob.Value, error) { return c.server.o.Store.Get(ctx, c.owner, c.args[0]) })
}

func (c *session) answer(get func() (blob.Value, error)) (found bool) {
	v, found := c.lookupBy(get)
	if found {
		c.out.value(v)
	} else {
		c.out.null()
	}
	return found
}

// doMget answers one name after the other, of values that one pass over the store has
// leased; values below DRAM come up meanwhile, in their order.
func doMget(c *session, ctx context.Context) {
	store := c.server.o.Store
	c.out.array(len(c.args))
	found := c.args[:0] // each is answered by then
	defer func() { store.Used(found) }()
	for part := range slices.Chunk(c.args, blob.PassNames) {
		leased := store.Lease(ctx, c.owner, part)
		for i, name := range part {
			if c.quit = c.quit || c.closing.Load(); c.quit { // in the middle of the reply
				break
			}
			if c.answer(func() (blob.Value, error) { return leased.Take(ctx, i) }) {
				found = append(found, name)
			}
		}
		if leased.Close(); c.quit {
			return
		}
	}
}

// doSet stores one value: SET key value [NX|XX] [EX s|PX ms|EXAT s|PXAT ms].
func doSet(c *session, ctx context.Context) {
	var when blob.When
	var expires time.Time
	for i := 2; i < len(c.args); i++ {
		switch option := strings.ToLower(string(c.args[i])); {
		case option == "nx" && when == blob.Always:
			when = blob.Absent
		case option == "xx" && when == blob.Always:
			when = blob.Present
		case expiryUnit[option] != 0 && expires.IsZero() && i+1 < len(c.args):
			i++
			n, ok := number(c.args[i])
			if !ok {
				c.fail(noInteger)
				return
			}
			if expires, ok = expiry(option, n); !ok {
				c.fail("ERR invalid expire time in 'set' command")
				return
			}
		default:
			c.fail(syntaxError)
			return
		}
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
func (c *session) drop(ctx context.Context, when blob.When, why error) {
	c.server.count.dropped.Add(why)
	c.server.trouble.Warn().Err(why).Stringer("reason", blob.ReasonOf(why)).Msg("a Redis client's value is dropped; it will be missed")
	if when != blob.Always {
		c.out.null()
		return
	}
	if _, err := c.server.o.Store.Delete(ctx, c.args[0]); err != nil {
		c.fail("ERR %v", err)
		return
	}
	c.out.simple("OK")
}

// expiryUnit has what one means in each option, in milliseconds.
var expiryUnit = map[string]int64{"ex": 1000, "px": 1, "exat": 1000, "pxat": 1}

// expiry is the time that an option names; false if there is none such.
func expiry(option string, n int64) (time.Time, bool) {
	unit := expiryUnit[option]
	if n <= 0 || n > math.MaxInt64/4/unit {
		return time.Time{}, false
	}
	if strings.HasSuffix(option, "at") {
		return time.UnixMilli(n * unit), true
	}
	return time.UnixMilli(time.Now().UnixMilli() + n*unit), true
}

func doSetNX(c *session, ctx context.Context) {
	stored, err := c.store(ctx, 0, blob.Absent, time.Time{})
	if err != nil {
		c.refuseValue(err)
		return
	}
	c.flag(stored)
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
		if _, err := c.store(ctx, i, blob.Always, time.Time{}); err != nil {
			failed = err
		}
	}
	if failed != nil {
		c.refuseValue(failed)
		return
	}
	c.out.simple("OK")
}

// store stores a value that came with the command.
func (c *session) store(ctx context.Context, i int, when blob.When, expires time.Time) (stored bool, err error) {
	f := &c.fills[i]
	if f.err != nil {
		return false, f.err
	}
	stored, err = f.Store(ctx, when, expires)
	f.Fill = nil
	if stored && err == nil {
		c.server.count.stored.Add(1)
	}
	return stored, err
}

// refuseValue answers why a value is not stored.
func (c *session) refuseValue(err error) {
	switch {
	case errors.Is(err, blob.ErrTooLarge):
		c.fail("ERR the name or the value is too large: a name may have 16 KiB, both together 64 MiB, and they must fit the DRAM of this daemon")
	case errors.Is(err, blob.ErrNoRoom):
		c.fail("OOM there is no room for this value now, or all that this connection has under way exceeds its share (budget.leases of DRAM, half of it while others are connected)")
	default:
		c.server.trouble.Warn().Err(err).Msg("a Redis client's value was not stored")
		c.fail("ERR the value was not stored: the tiers below do not answer")
	}
}

// flag answers 1 or 0.
func (c *session) flag(is bool) {
	if is {
		c.out.integer(1)
	} else {
		c.out.integer(0)
	}
}

func doStrlen(c *session, ctx context.Context) {
	v, ok := c.lookup(ctx, c.args[0])
	if !ok {
		c.out.integer(0)
		return
	}
	c.out.integer(int64(len(v.Bytes())))
	v.Release()
}
