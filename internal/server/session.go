package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/rs/zerolog"
	"golang.org/x/sync/semaphore"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

const (
	// maxLive is how many jobs, fills and pins a connection may have, and how
	// many requests unanswered.
	maxLive = 1024
	// flushBytes is how many bytes of replies are gathered, while requests
	// are waiting in the receive buffer, before they are sent.
	flushBytes = 64 << 10
	// farewellTimeout is how long a client has, when the daemon stops, to
	// take what it was sent.
	farewellTimeout = time.Second
	// quietBytes is what a connection costs that holds nothing: its receive
	// buffer, two goroutines, its tables, and about as much in the kernel.
	quietBytes = 128 << 10
	// asideBytes is what a request costs that waits in a goroutine of its own.
	asideBytes = 8 << 10
	// What a job or a fill costs while it is live, and each of its chunks: hash,
	// tokens, reference, and the state of its load.
	liveBytes, liveChunkBytes = 1 << 10, 96
)

// session is one connection and everything it holds.
type session struct {
	server  *Server
	id      uint64  // among all connections of the daemon's life
	uid     uint32  // of the peer
	tenant  *tenant // of the same
	mapped  bool    // the peer has the arena's descriptor; never changed after hello
	name    string  // as in its hello, for people
	conn    *wire.Conn
	account *budget.Account
	out     output
	// leaseAge is the age that hello told the client: a shorter one would find it
	// renewing too late.
	leaseAge time.Duration
	puts     wire.PutMode
	pushes   bool
	owner    ledger.Owner // ledger.Daemon until it asks for something to hold; then never changed
	users    atomic.Int64 // who may still hold something as owner; the last closes it
	staging  *staging     // with staged puts; otherwise nil
	peer     *arena.Peer  // with direct puts; otherwise nil
	log      zerolog.Logger

	// The reader's alone.
	turn    *fair.Turn
	turning context.Context // ctx for the request at hand, which takes turns
	pause   func()          // turn.Yield
	judged  judged
	spaces  spaces
	replies []byte
	kept    budget.Held // for replies, asked and lengths
	asked   key.Chain   // see scratch
	notes   notes
	payload uint32   // bytes of the last chunk it wanted to store
	lengths []uint32 // of the request at hand
	late    bool     // a goroutine answers the request at hand

	flushed flushMark           // as of this connection's last flush
	inline  *semaphore.Weighted // room for the copies of gets that wait

	waiting sync.WaitGroup // goroutines of this connection
	open    atomic.Int64   // requests that such a goroutine will answer
	warms   atomic.Int64   // warms under way
	ctx     context.Context

	mu struct {
		sync.Mutex
		closed bool
		jobs   map[uint64]*job // the reader adds and deletes
		fills  map[uint64]*fill
	}
}

// newSession greets a client. On an error the client has been told.
func newSession(ctx context.Context, s *Server, uc *net.UnixConn, u *tenant, account *budget.Account) (*session, error) {
	conn, err := wire.NewConn(uc, s.o.Spin)
	if err != nil {
		return nil, err
	}
	c := &session{server: s, id: s.sessionIDs.Add(1), conn: conn, account: account, log: s.o.Log, tenant: u, turn: u.NewTurn(), inline: semaphore.NewWeighted(maxInline)}
	c.pause = c.turn.Yield
	c.kept.Account = account
	c.out = output{conn: conn, account: account, limits: &s.o.Limits, spawn: c.waiting.Go}
	c.out.pushed.Account = account
	c.mu.jobs = make(map[uint64]*job)
	c.mu.fills = make(map[uint64]*fill)
	c.spaces.server = s
	limit := time.Now().Add(s.o.Limits.HelloTimeout)
	_ = conn.SetReadDeadline(limit) // these fail only on a closed socket, as the read will
	_ = conn.SetWriteDeadline(limit)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := c.hello(uc); err != nil {
		c.dismantle()
		return nil, err
	}
	_ = conn.SetReadDeadline(time.Time{})
	_ = conn.SetWriteDeadline(time.Time{})
	conn.SetMaxBody(wire.MaxBodyBytes)
	conn.SetStall(s.o.Limits.StallTimeout)
	if account != nil { // a nil *budget.Account would be a Meter
		if err := conn.SetMeter(account); err != nil {
			c.dismantle()
			return nil, err
		}
	}
	c.join()
	c.flushed.advance(s.o.Stack.Written())
	return c, nil
}

// serve answers requests until the connection or ctx ends, and gives back what
// the client held. What has arrived and is not begun by then is not answered: a
// client that has left may have sent more than an hour's work can be.
func (c *session) serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	c.ctx, c.turning = ctx, fair.With(ctx, c.turn)
	stop := context.AfterFunc(ctx, c.conn.Interrupt)
	err := c.read()
	stop()
	_ = c.conn.SetWriteDeadline(time.Now().Add(farewellTimeout)) // fails only on a closed socket, as writes will
	cancel()
	c.close()
	c.conn.Shut() // it is closed when its account is
	if err != nil && !errors.Is(err, io.EOF) {
		c.log.Debug().Err(err).Msg("connection ended")
	}
}

func (c *session) read() error {
	defer c.turn.Leave() // of requests that came at once the next may not be begun
	for {
		if c.ctx.Err() != nil {
			return c.farewell(wire.Header{}, c.ctx.Err())
		}
		h, body, err := c.conn.ReadFrame()
		if err != nil {
			return c.farewell(h, err)
		}
		start := time.Now()
		c.turn.Begin(start)
		c.late = false
		if err := c.answer(h, body); err != nil {
			c.flush()
			return err
		}
		more := c.conn.Buffered()
		if !more || len(c.replies) >= flushBytes {
			c.flush()
		}
		end := time.Now()
		if more {
			c.turn.End(end)
		} else {
			c.turn.Rest(end)
		}
		if !c.late {
			c.server.observe(h.Op, end.Sub(start))
		}
	}
}

// farewell tells a client why its connection ends, where that is its doing.
func (c *session) farewell(h wire.Header, err error) error {
	if errors.Is(err, wire.ErrStalled) {
		c.account.Closed(budget.Stalled)
		if h != (wire.Header{}) {
			c.replies = wire.AppendError(c.replies, h.Op, h.ID, wire.StatusTimeout, err.Error())
		}
	}
	if errors.Is(err, wire.ErrFrameTooLarge) {
		c.server.count.malformed.Add(1)
		c.replies = wire.AppendError(c.replies, h.Op, h.ID, wire.StatusTooLarge, err.Error())
	}
	c.flush()
	if c.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
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
		if cap(c.replies) > c.server.o.Limits.QueueBytes {
			c.replies = nil
		}
	}
	const perChunk = int64(unsafe.Sizeof(key.Hash{}) + unsafe.Sizeof(uint32(0)))
	_ = c.kept.Set(int64(cap(c.replies)+4*cap(c.lengths)) + perChunk*int64(cap(c.asked.Hashes))) // else the connection ends
	c.awaitRoom(c.turning)
}

// makeRoom makes room for n bytes of replies before they are appended. An error
// ends the connection.
func (c *session) makeRoom(n int) error {
	if n <= cap(c.replies)-len(c.replies) {
		return nil
	}
	before := c.kept.Bytes()
	n += len(c.replies)
	if err := c.kept.Set(before + int64(n)); err != nil { // both are there while one is copied
		return err
	}
	c.replies = append(make([]byte, 0, n), c.replies...)
	return nil // flush sets it right
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

// answer handles one frame. An error ends the connection.
func (c *session) answer(h wire.Header, body []byte) error {
	if h.Kind != wire.KindRequest || h.Status != 0 {
		c.server.count.malformed.Add(1)
		c.replies = wire.AppendError(c.replies, h.Op, h.ID, wire.StatusBadRequest, fmt.Sprintf("a %s frame with status %d came from a client; clients send requests", h.Kind, h.Status))
		return errors.New("the client sent no request")
	}
	err := c.handle(h, body)
	if err != nil {
		c.replies = c.appendRefusal(c.replies, h, err)
	}
	if h.Op == wire.OpHello {
		return err
	}
	return nil
}

// appendRefusal appends the reply for a request that failed.
func (c *session) appendRefusal(dst []byte, h wire.Header, err error) []byte {
	status := statusOf(err)
	if status == wire.StatusInternal {
		c.log.Error().Err(err).Stringer("op", h.Op).Msg("request failed")
	}
	c.server.count.errors.Add(1)
	// What is below says which operation failed; the reply's header does too.
	text := strings.TrimPrefix(err.Error(), h.Op.String()+": ")
	return wire.AppendError(dst, h.Op, h.ID, status, text)
}

// reply answers a request with ok.
func (c *session) reply(h wire.Header, m wire.Message) {
	c.replies = wire.AppendReply(c.replies, h.Op, h.ID, m)
}

// aside runs what answers the request at hand in a goroutine of its own. do
// must not touch what is the reader's alone, and ends with answerLate.
func (c *session) aside(do func(ctx context.Context)) error {
	if c.open.Add(1) > maxLive {
		c.open.Add(-1)
		return refuse(wire.StatusOverBudget, "%d requests of this connection are unanswered; wait for some", maxLive)
	}
	if err := c.account.Charge(asideBytes); err != nil {
		c.open.Add(-1)
		return err
	}
	c.late = true
	c.waiting.Go(func() {
		defer c.account.Release(asideBytes)
		do(c.ctx)
	})
	return nil
}

// later answers the request at hand with what do returns.
func (c *session) later(h wire.Header, do func(ctx context.Context) (wire.Message, error)) error {
	start := time.Now()
	return c.aside(func(ctx context.Context) {
		m, err := do(ctx)
		c.answerLate(h, m, err)
		c.server.observe(h.Op, time.Since(start))
	})
}

// answerLate sends the reply to a request that was set aside.
func (c *session) answerLate(h wire.Header, m wire.Message, err error) {
	var frame []byte
	if err != nil {
		frame = c.appendRefusal(nil, h, err)
	} else {
		frame = wire.AppendReply(nil, h.Op, h.ID, m)
	}
	c.open.Add(-1) // first: with the reply in hand the client may ask again
	c.out.send(frame)
}

// during runs what a timer does, unless the connection is being closed: then
// close gives everything back, and waits for what has begun.
func (c *session) during(f func()) {
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return
	}
	c.waiting.Add(1)
	c.mu.Unlock()
	defer c.waiting.Done()
	f()
}

// close gives back everything. Nobody reads any more, and the connection's
// context has ended.
func (c *session) close() {
	c.mu.Lock()
	c.mu.closed = true // nothing is added from now on
	jobs, fills := c.mu.jobs, c.mu.fills
	c.mu.Unlock()
	c.tenant.jobs.Add(-int64(len(jobs) + len(fills)))
	for _, j := range jobs {
		j.end()
	}
	for _, f := range fills {
		f.close()
	}
	c.dismantle()
	c.server.pins.drop(c) // a job may have pinned something until now
	c.leave()
}

// dismantle waits for the goroutines of the connection, and takes down what they
// used.
func (c *session) dismantle() {
	c.waiting.Wait()
	c.spaces.close()
	if c.staging != nil {
		_ = c.staging.window.Close() // fails only if it was closed before
	}
	if c.peer != nil {
		_ = c.peer.Close()
	}
}

// join and leave count who may still hold something as this owner: the
// connection, its pins, and what is quarantined.
func (c *session) join() { c.users.Add(1) }

func (c *session) leave() {
	if c.users.Add(-1) == 0 {
		if c.owner != ledger.Daemon {
			c.server.o.Stack.CloseOwner(c.owner)
		}
		c.server.users.leave(c.tenant)
	}
}
