package server

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/wire"
)

// asyncBytes is what a request costs that waits in a goroutine of its own: 18 KiB were
// measured with 27,000 of them, buffers of their connections included.
const asyncBytes = 16 << 10

// maxWaiting is how many requests of one user may be unanswered that wait. The runtime
// never gives back what it keeps of a goroutine, 0.5 KiB.
const maxWaiting = 4 << 10

// errCancelled is the cause of the context of a request that its client has cancelled.
var errCancelled = errors.New("cancelled by the client")

// async runs what answers the request of h in a goroutine of its own. do
// must not touch the fields of the reader, and ends with answerAsync. Its context ends
// when the client cancels the request.
func (c *reader) async(h wire.Header, do func(ctx context.Context)) error {
	if err := c.spend(asyncBytes); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(c.ctx)
	if err := c.waits(h, cancel); err != nil {
		cancel(nil)
		return err
	}
	c.late = true
	c.background(func(context.Context) {
		defer cancel(nil)
		do(ctx)
	})
	return nil
}

// waiting is a request that a goroutine will answer.
type waiting struct {
	cancel context.CancelCauseFunc
	bytes  int64 // of its body
}

// waits makes a request one that waits, until it is answered.
func (c *session) waits(h wire.Header, cancel context.CancelCauseFunc) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.waiting) >= maxLive {
		return refuse(wire.CodeOverBudget, "%d requests of this connection are unanswered; wait for some", maxLive)
	}
	if _, taken := c.mu.waiting[h.ID]; taken {
		return refuse(wire.CodeBadRequest, "request %d of this connection is not answered yet; give each its own id", h.ID)
	}
	if n := c.tenant.waiting.Add(1); n > maxWaiting {
		c.tenant.waiting.Add(-1)
		return refuse(wire.CodeOverBudget, "%d requests of %v wait for their answers; wait for some, or cancel them", maxWaiting, c.tenant.id)
	}
	c.mu.waiting[h.ID] = waiting{cancel, int64(h.BodyBytes)}
	c.under.Add(int64(h.BodyBytes))
	return nil
}

// answered ends that, before the reply is sent: with it in hand the client may use
// the id again.
func (c *session) answered(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tenant.waiting.Add(-1)
	c.under.Add(-c.mu.waiting[id].bytes)
	delete(c.mu.waiting, id)
}

func handleCancel(c *reader, h wire.Header, req wire.IDRequest) (wire.Message, error) {
	c.mu.Lock()
	w, waits := c.mu.waiting[req.ID]
	c.mu.Unlock()
	reply := wire.CodeReply{Code: wire.CodeNotFound}
	if waits {
		w.cancel(errCancelled)
		reply.Code = wire.CodeOK
	}
	return &reply, nil
}

// within is ctx with the deadline of a request, if it has one.
func within(ctx context.Context, d wire.Deadline) (context.Context, context.CancelFunc) {
	if !d.Given {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d.Or(0))
}

// background runs do in a goroutine of its own, which takes over the memory charged
// for the request at hand.
func (c *reader) background(do func(ctx context.Context)) {
	spent := c.spent
	c.spent = budget.Held{Account: c.account}
	c.waiting.Go(func() {
		defer spent.Set(0) //nolint:errcheck // it releases
		do(c.ctx)
	})
}

// asyncReply answers the request at hand with what do returns.
func (c *reader) asyncReply(h wire.Header, do func(ctx context.Context) (wire.Message, error)) (wire.Message, error) {
	start := time.Now()
	return nil, c.async(h, func(ctx context.Context) {
		m, err := do(ctx)
		c.answerAsync(h, m, asCancelled(ctx, err))
		c.server.took(h.Op, time.Since(start))
	})
}

// asCancelled is err, or says that the client has cancelled the request.
func asCancelled(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == errCancelled {
		return refuse(wire.CodeCancelled, "the client has cancelled the request")
	}
	return err
}

// answerAsync sends the reply to a request that was answered in a goroutine of its own.
func (c *session) answerAsync(h wire.Header, m wire.Message, err error) {
	var frame []byte
	if err != nil {
		frame = c.appendRefusal(nil, h, err)
	} else {
		frame = c.appendReply(nil, h, m)
	}
	c.answered(h.ID)
	c.out.send(frame)
}

// withinCredit is an error if the client has sent more than its credit without waiting for
// answers. What ends requests is always taken.
func (c *session) withinCredit(h wire.Header) error {
	if under := c.under.Load(); under+int64(h.BodyBytes) > c.credit && h.Op != wire.OpCancel {
		return refuse(wire.CodeOverBudget, "this request has %d bytes, and %d of others are not answered yet; the credit of this connection is %d: wait for some, or agree on more in hello", h.BodyBytes, under, c.credit)
	}
	return nil
}

// appendReply appends the reply to a request with ok, or refuses it where the client
// has agreed to less.
func (c *session) appendReply(dst []byte, h wire.Header, m wire.Message) []byte {
	out := wire.AppendReply(dst, h.Op, h.ID, m)
	if n := len(out) - len(dst) - wire.HeaderBytes; n > c.maxReply {
		return c.appendRefusal(out[:len(dst)], h, tooLargeReply(c, n))
	}
	return out
}

func tooLargeReply(c *session, n int) error {
	return refuse(wire.CodeTooLarge, "the reply has %d bytes, and the largest that was agreed to is %d; agree on more in hello", n, c.maxReply)
}

// appendRefusal appends the reply for a request that failed.
func (c *session) appendRefusal(dst []byte, h wire.Header, err error) []byte {
	code := codeOf(err)
	if code == wire.CodeInternal {
		c.log.Error().Err(err).Stringer("op", h.Op).Msg("request failed")
	}
	c.server.count.failures.add(h.Op, code)
	// The layers below say which operation failed; the reply's header does too.
	text := strings.TrimPrefix(err.Error(), h.Op.String()+": ")
	return wire.AppendError(dst, h.Op, h.ID, code, replyOf(err, code, text))
}

// awaitRoom waits while the client does not read.
func (c *session) awaitRoom(ctx context.Context) {
	if full := c.out.room(); full != nil {
		select {
		case <-full:
		case <-ctx.Done():
		}
	}
}
