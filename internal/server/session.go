package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

const (
	// helloTimeout is how long a client has for its first frame.
	helloTimeout = 10 * time.Second
	// maxLive is how many jobs and fills a connection may have, and how many
	// requests unanswered.
	maxLive = 1024
	// flushBytes is how many bytes of replies are gathered, while requests
	// are waiting in the receive buffer, before they are sent.
	flushBytes = 64 << 10
)

// session is one connection and everything it holds.
type session struct {
	server  *Server
	conn    *wire.Conn
	out     output
	rights  wire.Rights
	puts    wire.PutMode
	pushes  bool
	owner   ledger.Owner
	users   atomic.Int64 // who may still hold something as owner; the last closes it
	staging *staging     // with staged puts; otherwise nil
	peer    *arena.Peer  // with direct puts; otherwise nil
	log     zerolog.Logger

	// The reader's alone.
	spaces  spaces
	replies []byte

	flushed flushMark // as of this connection's last flush

	waiting sync.WaitGroup // goroutines of this connection
	open    atomic.Int64   // requests that such a goroutine will answer
	ctx     context.Context

	mu struct {
		sync.Mutex
		jobs  map[uint64]*job
		fills map[uint64]*fill
		pins  map[string][]*pin
	}
}

// newSession greets a client. On an error the client has been told.
func newSession(s *Server, uc *net.UnixConn) (*session, error) {
	conn, err := wire.NewConn(uc, s.o.Spin)
	if err != nil {
		return nil, err
	}
	c := &session{server: s, conn: conn, log: s.o.Log}
	c.out = output{conn: conn, spawn: func(f func()) { c.waiting.Go(f) }}
	c.mu.jobs = make(map[uint64]*job)
	c.mu.fills = make(map[uint64]*fill)
	c.mu.pins = make(map[string][]*pin)
	c.spaces.defaults = &s.o
	c.owner = s.o.Stack.NewOwner()
	c.join()
	c.flushed.advance(s.o.Stack.Written())
	_ = conn.SetReadDeadline(time.Now().Add(helloTimeout)) // fails only on a closed socket, as the read will
	if err := c.hello(uc); err != nil {
		c.close()
		s.count.refused.Add(1)
		return nil, err
	}
	_ = conn.SetReadDeadline(time.Time{})
	conn.SetMaxBody(wire.MaxBodyBytes)
	return c, nil
}

// serve answers requests until the connection ends, and gives back what it
// held.
func (c *session) serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	c.ctx = ctx
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() })
	err := c.read()
	stop()
	cancel()
	_ = c.conn.Close()
	c.close()
	if err != nil && !errors.Is(err, io.EOF) {
		c.log.Debug().Err(err).Msg("connection ended")
	}
}

func (c *session) read() error {
	for {
		h, body, err := c.conn.ReadFrame()
		if err != nil {
			return c.farewell(err)
		}
		start := time.Now()
		if err := c.answer(h, body); err != nil {
			c.flush()
			return err
		}
		if !c.conn.Buffered() || len(c.replies) >= flushBytes {
			c.flush()
		}
		if observe := c.server.o.Observe; observe != nil {
			observe(h.Op, time.Since(start))
		}
	}
}

// farewell tells a client why its connection ends, where that is its doing.
func (c *session) farewell(err error) error {
	if errors.Is(err, wire.ErrFrameTooLarge) {
		c.server.count.malformed.Add(1)
		c.replies = wire.AppendError(c.replies, 0, 0, wire.StatusTooLarge, err.Error())
	}
	c.flush()
	if c.ctx.Err() != nil || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// flush sends the replies gathered so far, and waits while the client does
// not read.
func (c *session) flush() {
	if len(c.replies) > 0 {
		c.out.send(c.replies)
		c.replies = c.replies[:0]
		if cap(c.replies) > maxQueued {
			c.replies = nil
		}
	}
	if full := c.out.room(); full != nil {
		select {
		case <-full:
		case <-c.ctx.Done():
		}
	}
}

// refusal is an error that is answered with its status.
type refusal struct {
	status wire.Status
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status wire.Status, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// answer handles one frame. An error ends the connection.
func (c *session) answer(h wire.Header, body []byte) error {
	if h.Kind != wire.KindRequest || h.Status != 0 {
		c.server.count.malformed.Add(1)
		c.replies = wire.AppendError(c.replies, h.Op, h.ID, wire.StatusBadRequest, fmt.Sprintf("a %s frame with status %d came from a client; clients send requests", h.Kind, h.Status))
		return errors.New("the client sent no request")
	}
	err := c.handle(h, body)
	if err != nil {
		c.refused(h, err)
	}
	return nil
}

func (c *session) refused(h wire.Header, err error) {
	status := statusOf(err)
	if status == wire.StatusInternal {
		c.log.Error().Err(err).Stringer("op", h.Op).Msg("request failed")
	}
	c.server.count.errors.Add(1)
	c.replies = wire.AppendError(c.replies, h.Op, h.ID, status, err.Error())
}

func statusOf(err error) wire.Status {
	var r *refusal
	switch {
	case errors.As(err, &r):
		return r.status
	case errors.Is(err, wire.ErrUnknownOption):
		return wire.StatusUnknownOption
	case errors.Is(err, wire.ErrMalformed):
		return wire.StatusBadRequest
	case errors.Is(err, tier.ErrInconsistent), errors.Is(err, ledger.ErrInconsistent):
		return wire.StatusInconsistentChain
	case errors.Is(err, tier.ErrTooLarge):
		return wire.StatusTooLarge
	case errors.Is(err, tier.ErrOverBudget), errors.Is(err, ledger.ErrOverBudget):
		return wire.StatusOverBudget
	case errors.Is(err, tier.ErrNoSpace), errors.Is(err, ledger.ErrBusy):
		return wire.StatusNoSpace
	case errors.Is(err, tier.ErrNotFound):
		return wire.StatusNotFound
	case errors.Is(err, tier.ErrOff):
		return wire.StatusTierOff
	case errors.Is(err, context.DeadlineExceeded):
		return wire.StatusTimeout
	case errors.Is(err, context.Canceled), errors.Is(err, tier.ErrClosed):
		return wire.StatusClosed
	}
	return wire.StatusInternal
}

// reply answers a request with ok.
func (c *session) reply(h wire.Header, m wire.Message) {
	c.replies = wire.AppendReply(c.replies, h.Op, h.ID, m)
}

// later answers a request from a goroutine of its own. do must not touch what
// is the reader's alone.
func (c *session) later(h wire.Header, do func(ctx context.Context) (wire.Message, error)) error {
	if c.open.Add(1) > maxLive {
		c.open.Add(-1)
		return refuse(wire.StatusOverBudget, "%s: %d requests of this connection are unanswered; wait for some", h.Op, maxLive)
	}
	c.waiting.Go(func() {
		defer c.open.Add(-1)
		var frame []byte
		if m, err := do(c.ctx); err != nil {
			frame = wire.AppendError(nil, h.Op, h.ID, statusOf(err), err.Error())
		} else {
			frame = wire.AppendReply(nil, h.Op, h.ID, m)
		}
		c.out.send(frame)
	})
	return nil
}

// close gives back everything. Nobody reads any more.
func (c *session) close() {
	c.mu.Lock()
	jobs, fills, pins := c.mu.jobs, c.mu.fills, c.mu.pins
	c.mu.jobs, c.mu.fills, c.mu.pins = nil, nil, nil
	c.mu.Unlock()
	for _, j := range jobs {
		j.end(wire.ReasonCancelled)
	}
	for _, f := range fills {
		f.abandon()
	}
	for _, ps := range pins {
		for _, p := range ps {
			p.release()
		}
	}
	c.waiting.Wait()
	if c.staging != nil {
		_ = c.staging.window.Close() // fails only if it was closed before
	}
	if c.peer != nil {
		_ = c.peer.Close()
	}
	c.leave()
}

// join and leave count who may still hold something as this owner.
func (c *session) join() { c.users.Add(1) }

func (c *session) leave() {
	if c.users.Add(-1) == 0 {
		c.server.o.Stack.CloseOwner(c.owner)
	}
}
