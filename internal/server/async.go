package server

import (
	"context"
	"strings"
	"time"

	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/internal/wire"
)

// asyncBytes is what a request costs that waits in a goroutine of its own.
const asyncBytes = 8 << 10

// async runs what answers the request at hand in a goroutine of its own. do
// must not touch the fields of the reader, and ends with answerAsync.
func (c *reader) async(do func(ctx context.Context)) error {
	if c.open.Add(1) > maxLive {
		c.open.Add(-1)
		return refuse(wire.StatusOverBudget, "%d requests of this connection are unanswered; wait for some", maxLive)
	}
	if err := c.account.Charge(asyncBytes); err != nil {
		c.open.Add(-1)
		return err
	}
	c.late = true
	c.waiting.Go(func() {
		defer c.account.Release(asyncBytes)
		do(c.ctx)
	})
	return nil
}

// asyncReply answers the request at hand with what do returns.
func (c *reader) asyncReply(h wire.Header, do func(ctx context.Context) (wire.Message, error)) error {
	start := time.Now()
	return c.async(func(ctx context.Context) {
		m, err := do(ctx)
		c.answerAsync(h, m, err)
		c.server.observe(h.Op, time.Since(start))
	})
}

// answerAsync sends the reply to a request that was answered in a goroutine of its own.
func (c *session) answerAsync(h wire.Header, m wire.Message, err error) {
	var frame []byte
	if err != nil {
		frame = c.appendRefusal(nil, h, err)
	} else {
		frame = wire.AppendReply(nil, h.Op, h.ID, m)
	}
	c.open.Add(-1) // first: with the reply in hand the client may ask again
	c.out.send(frame)
}

// appendRefusal appends the reply for a request that failed.
func (c *session) appendRefusal(dst []byte, h wire.Header, err error) []byte {
	status := statusOf(err)
	if status == wire.StatusInternal {
		c.log.Error().Err(err).Stringer("op", h.Op).Msg("request failed")
	}
	c.server.count.errors.Add(1)
	// The layers below say which operation failed; the reply's header does too.
	text := strings.TrimPrefix(err.Error(), h.Op.String()+": ")
	return wire.AppendError(dst, h.Op, h.ID, status, text)
}

// awaitRoom waits while the client does not read.
func (c *session) awaitRoom(ctx context.Context) {
	if full := c.out.room(); full != nil {
		fair.Leave(ctx)
		select {
		case <-full:
		case <-ctx.Done():
		}
	}
}
