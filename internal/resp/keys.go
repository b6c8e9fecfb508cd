package resp

import (
	"context"
	"errors"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvstored/kvstored/internal/blob"
)

func doExists(c *session, ctx context.Context) {
	n := 0
	for names := range slices.Chunk(c.args, blob.PassNames) {
		if c.cutShort() {
			return
		}
		n += c.server.o.Store.CountHas(ctx, names)
	}
	c.out.integer(int64(n))
}

func doDel(c *session, ctx context.Context) {
	n := 0
	for names := range slices.Chunk(c.args, blob.DeleteNames) {
		if c.cutShort() {
			return
		}
		had, err := c.server.o.Store.DeleteAll(ctx, names)
		if err != nil {
			c.server.trouble.Warn().Err(err).Msg("a Redis client's keys were not all deleted")
			c.fail("ERR not deleted: the tiers below do not answer, and it could not be noted")
			return
		}
		n += had
	}
	c.out.integer(int64(n))
}

func doType(c *session, ctx context.Context) {
	if c.server.o.Store.Has(ctx, c.args[0]) {
		c.out.simple("string")
		return
	}
	c.out.simple("none")
}

func doTTL(c *session, ctx context.Context)  { c.left(ctx, time.Second) }
func doPTTL(c *session, ctx context.Context) { c.left(ctx, time.Millisecond) }

// left answers how long a value has, rounded as Redis does: -1 for ever, -2 if
// there is none.
func (c *session) left(ctx context.Context, unit time.Duration) {
	v, ok := c.lookup(ctx, c.args[0])
	if !ok {
		c.out.integer(-2)
		return
	}
	defer v.Release()
	at := v.Expires()
	if at.IsZero() {
		c.out.integer(-1)
		return
	}
	c.out.integer(int64((max(0, time.Until(at)) + unit/2) / unit))
}

func doExpire(c *session, ctx context.Context)  { c.expireIn(ctx, 1000) }
func doPexpire(c *session, ctx context.Context) { c.expireIn(ctx, 1) }

func (c *session) expireIn(ctx context.Context, unit int64) {
	n, ok := number(c.args[1])
	if !ok || n > math.MaxInt64/4/unit || n < -math.MaxInt64/4/unit {
		c.fail(noInteger)
		return
	}
	if n > 0 {
		c.setExpiry(ctx, time.UnixMilli(time.Now().UnixMilli()+n*unit))
		return
	}
	c.args = c.args[:1]
	doDel(c, ctx)
}

func doPersist(c *session, ctx context.Context) {
	v, ok := c.lookup(ctx, c.args[0])
	if !ok {
		c.flag(false)
		return
	}
	bounded := !v.Expires().IsZero()
	v.Release()
	if !bounded {
		c.flag(false)
		return
	}
	c.setExpiry(ctx, time.Time{})
}

func (c *session) setExpiry(ctx context.Context, at time.Time) {
	switch err := c.server.o.Store.Expire(ctx, c.owner, c.args[0], at); {
	case err == nil:
		c.flag(true)
	case errors.Is(err, blob.ErrNotFound):
		c.flag(false)
	default:
		c.fail("OOM there is no room to write the value anew with its expiry")
	}
}

// doScan answers SCAN cursor [MATCH pattern] [COUNT n] [TYPE t].
func doScan(c *session, _ context.Context) {
	cursor, err := strconv.ParseUint(string(c.args[0]), 10, 64)
	if err != nil {
		c.fail("ERR invalid cursor")
		return
	}
	pattern, count, ofType := "*", int64(10), "string"
	for rest := c.args[1:]; len(rest) > 0; rest = rest[2:] {
		if len(rest) < 2 {
			c.fail(syntaxError)
			return
		}
		ok := true
		switch strings.ToLower(string(rest[0])) {
		case "match":
			pattern = string(rest[1])
		case "count":
			count, ok = number(rest[1])
			ok = ok && count > 0
		case "type":
			ofType = strings.ToLower(string(rest[1]))
		default:
			ok = false
		}
		if !ok {
			c.fail(syntaxError)
			return
		}
	}
	var names [][]byte
	next := c.server.o.Store.Scan(cursor, int(min(count, 10_000)), func(name []byte) {
		if ofType == "string" && matches(pattern, name) {
			names = append(names, append([]byte(nil), name...))
		}
	})
	c.out.array(2)
	c.out.text(strconv.FormatUint(next, 10))
	c.out.array(len(names))
	for _, name := range names {
		c.out.bulk(name)
	}
}

// matches is Redis's glob, in which a slash is like any other byte.
func matches(pattern string, name []byte) bool {
	if pattern == "*" {
		return true
	}
	// path.Match treats the slash alone differently: a byte that is in no text
	// stands in for it.
	slash := strings.NewReplacer("/", "\xff")
	ok, err := path.Match(slash.Replace(pattern), slash.Replace(string(name)))
	return err == nil && ok
}

func doDBSize(c *session, _ context.Context) { c.out.integer(int64(c.server.o.Store.Count())) }

func doFlush(c *session, ctx context.Context) {
	if !c.server.now.Load().Flush {
		c.fail("ERR flushing is not allowed; set listen.resp_flush to true")
		return
	}
	_, err := c.server.o.Store.Clear(ctx)
	if errors.Is(err, blob.ErrNotReady) {
		c.fail("LOADING the disk tier is still being scanned; try again")
		return
	}
	if err != nil {
		c.server.trouble.Warn().Err(err).Msg("a Redis client's FLUSHDB failed")
		c.fail("ERR not all was deleted: the tiers below do not answer")
		return
	}
	c.out.simple("OK")
}
