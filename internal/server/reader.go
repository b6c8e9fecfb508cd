package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/socket"
	"github.com/kvstored/kvstored/internal/wire"
)

const (
	// flushBytes is how many bytes of replies are gathered, while requests
	// are waiting in the receive buffer, before they are sent.
	flushBytes = 64 << 10
	// lastReplyTimeout is how long a client has, when the daemon stops, to take
	// the replies that it was sent.
	lastReplyTimeout = time.Second
)

// reader is what the goroutine has to itself that reads the requests of a session
// and answers them. A goroutine that answers one later (see async) has the
// session only.
type reader struct {
	server  *Server
	session *session
	rights  rights
	replies []byte
	kept    budget.Held // for replies, and what the resolver and prompts keep
	// spent is charged before memory is taken for the request at hand, until that is answered,
	// also where a goroutine does that (see async). An error ends the connection.
	spent       budget.Held
	resolver    resolver
	prompts     promptLog
	unannounced []*job // whose reply is among replies
	payload     uint32 // bytes of the last chunk it wanted to store
	late        bool   // a goroutine answers the request at hand
	// begun is when the request at hand was begun, where the log tells of each.
	begun time.Time
}

// newReader makes the reader of a session.
func newReader(c *session) *reader {
	r := &reader{server: c.server, session: c}
	r.kept.Account, r.spent.Account = c.account, c.account
	r.rights = rights{session: c, spaces: spaces{server: c.server, account: c.account}}
	r.resolver = resolver{session: c, rights: &r.rights, spent: &r.spent}
	r.prompts = promptLog{store: c.server.o.Store, asked: c.server.o.Asked}
	return r
}

// open greets a client. On an error the client has been told.
func open(ctx context.Context, s *Server, nc net.Conn, u *tenant, account *budget.Account) (*reader, error) {
	conn, err := wire.NewConn(nc)
	if err != nil {
		return nil, err
	}
	c := newReader(newSession(s, conn, u, account))
	limit := time.Now().Add(s.o.Limits.HelloTimeout)
	_ = conn.SetReadDeadline(limit) // these fail only on a closed socket, as the read will
	_ = conn.SetWriteDeadline(limit)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := c.hello(); err != nil {
		c.end()
		return nil, err
	}
	_ = conn.SetReadDeadline(time.Time{})
	_ = conn.SetWriteDeadline(time.Time{})
	conn.SetStall(s.o.Limits.StallTimeout)
	if account != nil { // a nil *budget.Account would be a Meter
		if err := conn.SetMeter(account); err != nil {
			c.end()
			return nil, err
		}
	}
	c.session.flushed.advance(s.o.Store.Writers.Written())
	return c, nil
}

// end takes down a session that was not greeted.
func (c *reader) end() {
	c.server.sessions.remove(c.session)
	c.session.teardown()
	c.rights.spaces.close()
	c.session.left()
}

// serve answers requests until the connection or ctx ends, and gives back what
// the client held. A request that has arrived and is not begun by then is not answered: a
// client that has left may have sent more than an hour's work can be.
func (c *reader) serve(ctx context.Context) {
	served := ctx
	ctx, cancel := context.WithCancel(ctx)
	c.session.ctx = ctx
	stop := context.AfterFunc(ctx, c.session.conn.Interrupt)
	err := c.read()
	stop()
	_ = c.session.conn.SetWriteDeadline(time.Now().Add(lastReplyTimeout)) // fails only on a closed socket, as writes will
	cancel()
	c.session.close()
	c.rights.spaces.close()
	if cause := context.Cause(served); cause == nil || errors.Is(cause, socket.ErrDeparted) { // where the daemon ends, the client goes on
		c.session.left()
	}
	c.session.conn.Shut() // it is closed when its account is
	if err != nil && !errors.Is(err, io.EOF) {
		c.session.log.Debug().Err(err).Msg("connection ended")
	}
}

// read answers requests one by one. It returns why it ended.
func (c *reader) read() error {
	for {
		if c.session.ctx.Err() != nil {
			return c.lastReply(wire.Header{}, c.session.ctx.Err())
		}
		h, body, err := c.session.conn.ReadFrame()
		if err != nil {
			return c.lastReply(h, err)
		}
		start := time.Now()
		c.late = false
		if err := c.answer(h, body); err != nil {
			c.flush()
			return err
		}
		if !c.session.conn.Buffered() || len(c.replies) >= flushBytes {
			c.flush()
		}
		if !c.late {
			c.server.took(h.Op, time.Since(start))
		}
	}
}

// lastReply tells a client why its connection ends, where that is its doing.
func (c *reader) lastReply(h wire.Header, err error) error {
	if errors.Is(err, wire.ErrStalled) {
		c.session.account.Closed(budget.Stalled)
		if h != (wire.Header{}) {
			c.replies = wire.AppendError(c.replies, h.Op, h.ID, wire.CodeTimeout, wire.Refusal(wire.CodeTimeout, err.Error()))
		}
	}
	if errors.Is(err, wire.ErrFrameTooLarge) {
		c.server.count.malformed.Add(1)
		c.replies = wire.AppendError(c.replies, h.Op, h.ID, wire.CodeTooLarge, wire.Refusal(wire.CodeTooLarge, err.Error()))
	}
	c.flush()
	if c.session.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// flush sends the replies gathered so far, and waits while the client does
// not read.
func (c *reader) flush() {
	c.sendReplies()
	bytes := int64(cap(c.replies)+c.rights.spaces.scratchBytes()) + c.resolver.bytes() + c.prompts.rankBytes
	_ = c.kept.Set(bytes) // else the connection ends
	c.session.awaitRoom(c.session.ctx)
}

// sendReplies is flush that does not wait: a request goes on after it.
func (c *reader) sendReplies() {
	if len(c.replies) > 0 {
		c.session.out.send(c.replies)
		c.replies = c.replies[:0]
		for _, j := range c.unannounced {
			j.tell()
		}
		clear(c.unannounced)
		c.unannounced = c.unannounced[:0]
		if cap(c.replies) > c.server.o.Limits.QueueBytes {
			c.replies = nil
		}
	}
}

// makeRoom makes room for n bytes of replies before they are appended. An error
// ends the connection.
func (c *reader) makeRoom(n int) error {
	if n <= cap(c.replies)-len(c.replies) {
		return nil
	}
	n += len(c.replies)
	if err := c.kept.Add(int64(n)); err != nil { // both are there while one is copied
		return err
	}
	c.replies = append(make([]byte, 0, n), c.replies...)
	return nil // flush sets it right
}

// answer handles one frame. An error ends the connection.
func (c *reader) answer(h wire.Header, body []byte) error {
	if h.Kind != wire.KindRequest || h.Code != 0 || h.BodyBytes%8 != 0 {
		c.server.count.malformed.Add(1)
		text := fmt.Sprintf("a %s frame with code %d and %d bytes came from a client; clients send requests of code 0 and multiples of 8 bytes", h.Kind, uint16(h.Code), h.BodyBytes)
		c.replies = wire.AppendError(c.replies, h.Op, h.ID, wire.CodeBadRequest, wire.Refusal(wire.CodeBadRequest, text))
		return errors.New("the client sent no request")
	}
	c.begun = time.Time{}
	if c.session.log.Debug().Enabled() {
		c.begun = time.Now()
	}
	err := c.handle(h, body)
	_ = c.spent.Set(0) // releases
	if told := h.Op == wire.OpLookup || h.Op == wire.OpPrefetch || h.Op == wire.OpBatch; !c.begun.IsZero() && (err != nil || !told) {
		c.session.log.Debug().Uint64("connection", c.session.id).Stringer("op", h.Op).Dur("took", time.Since(c.begun)).Err(err).Msg("request")
	}
	if err != nil {
		c.replies = c.session.appendRefusal(c.replies, h, err)
	}
	if h.Op == wire.OpHello {
		return err
	}
	return nil
}

// handle answers one request of a greeted client.
func (c *reader) handle(h wire.Header, body []byte) error {
	o := &operations[h.Op]
	if o.handle == nil {
		return refuse(wire.CodeUnknownOp, "%s is unknown here; the daemon speaks version %d", h.Op, wire.Version)
	}
	if err := cmp.Or(c.rights.allowed(h.Op, o), c.session.withinCredit(h)); err != nil {
		return err
	}
	c.server.count.requests.Add(1)
	if o.holds {
		if err := c.own(); err != nil {
			return err
		}
	}
	m, err := o.handle(c, h, body)
	if err == nil && m != nil {
		c.reply(h, m)
	}
	return err
}

// own makes the connection an owner, unless as many hold something as may.
func (c *reader) own() error {
	if s := c.session; s.owner == ledger.Daemon {
		s.mu.Lock()
		s.owner = c.server.o.Store.Leases.NewOwner()
		s.mu.Unlock()
		if s.owner == ledger.Daemon {
			return refuse(wire.CodeOverBudget, "%d connections hold something, which is as many as may; close some", ledger.MaxOwners)
		}
	}
	return nil
}

// reply answers a request with ok.
func (c *reader) reply(h wire.Header, m wire.Message) {
	c.replies = c.session.appendReply(c.replies, h, m, nil)
}

// operation is what the server knows of one operation of the protocol.
type operation struct {
	handle handler       // nil: there is none
	rights access.Rights // that it takes
	scope  scope         // where it takes them
	// holds says that it makes a connection an owner: one that only asks for
	// statistics must not halve what the others may hold.
	holds bool
}

// handler answers a request with a message. Without one it has answered already, or a
// goroutine will.
type handler func(c *reader, h wire.Header, body []byte) (wire.Message, error)

// on is the handler that decodes a request for do.
func on[T any, P interface {
	*T
	wire.Message
}](do func(c *reader, h wire.Header, req T) (wire.Message, error)) handler {
	spare := sync.Pool{New: func() any { return new(T) }} // what Decode fills in would be allocated for each request
	return func(c *reader, h wire.Header, body []byte) (wire.Message, error) {
		into := spare.Get().(*T)
		err := P(into).Decode(body)
		req := *into
		*into = *new(T) // it has views into the body
		spare.Put(into)
		if err != nil {
			return nil, err
		}
		return do(c, h, req)
	}
}

// operations is every operation of a greeted client, by its code.
var operations = [1 << 8]operation{
	wire.OpHello:     {handleHelloAgain, 0, somewhere, false},
	wire.OpOpenSpace: {on(handleOpenSpace), 0, somewhere, false},
	wire.OpPing:      {on(handlePing), 0, somewhere, false},
	wire.OpCancel:    {on(handleCancel), 0, somewhere, false},
	wire.OpRenew:     {on(handleRenew), 0, somewhere, false},

	wire.OpLookup:   {on(handleLookup), access.Read, inSpaces, false},
	wire.OpPrefetch: {on(handlePrefetch), access.Read, inSpaces, true},
	wire.OpBatch:    {on(handleBatch), access.Read, inSpaces, true},
	wire.OpGet:      {on(handleGet), access.Read, inSpaces, true},
	wire.OpWarm:     {on(handleWarm), access.Read, inSpaces, false},
	wire.OpHint:     {on(handleHint), access.Read, inSpaces, false},
	wire.OpPin:      {on(handlePin), access.Read, inSpaces, false}, // holds with a chain only
	wire.OpWait:     {on(handleWait), access.Read, somewhere, false},
	wire.OpRelease:  {on(handleRelease), access.Read, somewhere, false},
	wire.OpEvents:   {on(handleEvents), access.Read, somewhere, false},
	wire.OpStats:    {on(handleStats), access.Read, everywhere, false},

	wire.OpReserve: {on(handleReserve), access.Write, inSpaces, true},
	wire.OpCommit:  {on(handleCommit), access.Write, inSpaces, false},
	wire.OpPut:     {on(handlePut), access.Write, inSpaces, true},
	wire.OpDelete:  {on(handleDelete), access.Write, inSpaces, false},
	wire.OpAbort:   {on(handleAbort), access.Write, somewhere, false},
	wire.OpFlush:   {on(handleFlush), access.Write, somewhere, false},
}
