package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
)

// keepWriteBytes is the largest encoding buffer kept between requests.
const keepWriteBytes = 1 << 20

// link is the connection as its callers share it: one at a time writes, one of
// those that wait reads for all.
type link struct {
	conn    *wire.Conn
	maxBody int64
	patience
	push func(h wire.Header, body []byte) error // called by the reader; an error ends the link

	reader chan struct{} // holds one token; whoever took it reads
	writer chan struct{} // holds one token; whoever took it writes, and owns out
	out    []byte
	spare  late          // the writer's: buffers for what waits next
	down   chan struct{} // closed when the link has failed
	idle   sync.Pool     // of *call

	mu struct {
		sync.Mutex
		calls   map[uint64]*call
		next    uint64
		late    late   // whole requests that go out with the next one
		orphans []byte // and others that go out by themselves, see sweep
		err     error  // why down is closed
	}
}

// call is one request that waits for its reply.
type call struct {
	id   uint64
	op   wire.Op
	done chan struct{} // gets one token when err is final

	// take gets the body of the reply from the reader; the body is valid until
	// take returns. If the caller has left, the reader calls undo instead, which
	// gives back a job or fill of the reply, see giveBack. Guarded
	// by link.mu until the reader sets taken; from then on they are the reader's.
	take  func(body []byte) error
	undo  func(body []byte) error
	left  bool
	taken bool
	err   error
}

func newLink(conn *wire.Conn, maxBody uint32, p patience) *link {
	l := &link{
		conn:     conn,
		maxBody:  int64(maxBody),
		patience: p,
		reader:   make(chan struct{}, 1),
		writer:   make(chan struct{}, 1),
		down:     make(chan struct{}),
	}
	l.reader <- struct{}{}
	l.writer <- struct{}{}
	l.idle.New = func() any { return &call{done: make(chan struct{}, 1)} }
	l.mu.calls = make(map[uint64]*call)
	return l
}

// message is a request on its way: its body is head and payloads, and zeros up to a
// multiple of 8. take and undo are those of call.
type message struct {
	op       wire.Op
	leads    bool // later commits follow it in the same write; no payloads
	head     func(dst []byte) []byte
	payloads [][]byte
	take     func(body []byte) error
	undo     func(body []byte) error
	begins   func(id uint64) // nil, or told the request's id before it is sent
}

// do sends a request and waits for its reply. An error of take is the error of
// the call; if it says that the daemon broke the protocol, the link ends too.
func (l *link) do(ctx context.Context, op wire.Op, req wire.Message, take, undo func([]byte) error) error {
	return l.exchange(ctx, &message{op: op, head: req.Append, take: take, undo: undo})
}

// exchange is do for any message.
func (l *link) exchange(ctx context.Context, m *message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := l.idle.Get().(*call)
	*c = call{op: m.op, done: c.done, take: m.take, undo: m.undo}
	if err := l.register(c); err != nil {
		return err
	}
	if m.begins != nil {
		m.begins(c.id)
	}
	if err := l.send(ctx, c.id, m); err != nil {
		l.mu.Lock()
		delete(l.mu.calls, c.id)
		l.mu.Unlock()
		return err
	}
	if err := l.answered(ctx, c.op, c.done); err != nil {
		if !l.leave(c) {
			l.cancel(c)
			return err
		}
		<-c.done // it is just being delivered
	}
	err := c.err
	c.take, c.undo = nil, nil
	l.idle.Put(c)
	return err
}

func (l *link) register(c *call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.err != nil {
		return l.mu.err
	}
	l.mu.next++
	c.id = l.mu.next
	l.mu.calls[c.id] = c
	return nil
}

// leave lets a call go on without its caller. It reports false if that is
// done, true if the reply is being delivered at this moment.
func (l *link) leave(c *call) (delivered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.taken {
		return true
	}
	c.take, c.left = nil, true
	return false
}

// cancel has the daemon end a request that waits, for a caller that has left.
func (l *link) cancel(c *call) {
	if slow(c.op) {
		l.giveBack(wire.OpCancel, &wire.IDRequest{ID: c.id})
		l.sweep()
	}
}

// send writes the later requests, and m unless it is nil.
func (l *link) send(ctx context.Context, id uint64, m *message) error {
	select {
	case <-l.writer:
	default:
		ctx, cancel := l.bound(ctx)
		defer cancel()
		select {
		case <-l.writer:
		case <-l.down:
			return l.failure()
		case <-ctx.Done():
			return ended(ctx)
		}
	}
	defer func() { l.writer <- struct{}{} }()
	if cap(l.out) > keepWriteBytes {
		l.out = nil
	}
	late, err := l.gather(id, m)
	if err != nil || len(l.out) == 0 {
		return err
	}
	if m == nil {
		m = &message{}
	}
	sent, err := l.write(ctx, false, l.out)
	if !sent && err != nil {
		l.keepLate(late)
	}
	for _, p := range m.payloads {
		if err == nil {
			sent, err = l.write(ctx, sent, p)
		}
	}
	if pad := m.padding(); err == nil && pad > 0 {
		var zeros [8]byte
		_, err = l.write(ctx, sent, zeros[:pad])
	}
	return err
}

// gather puts the later requests and the frame of m, if there is one, into out. It
// returns the later ones, which are valid until the next gather. With an error they
// are kept.
func (l *link) gather(id uint64, m *message) (out late, err error) {
	l.mu.Lock()
	waiting := l.mu.late
	l.mu.late = l.spare
	l.mu.Unlock()
	l.spare = late{waiting.first[:0], waiting.commits[:0]}

	l.out = append(l.out[:0], waiting.first...)
	leads := m != nil && m.leads
	if !leads {
		l.out = append(l.out, waiting.commits...)
	}
	if m != nil {
		err = l.encode(id, m)
	}
	if leads {
		l.out = append(l.out, waiting.commits...)
	}
	if err != nil {
		l.keepLate(waiting)
	}
	return waiting, err
}

// encode appends the frame of m up to its payloads, with the length of all.
func (l *link) encode(id uint64, m *message) error {
	start := len(l.out)
	l.out = wire.End(m.head(wire.Begin(l.out, wire.Header{Kind: wire.KindRequest, Op: m.op, ID: id})), start)
	body := int64(len(l.out)-start-wire.HeaderBytes) + sum(m.payloads) + int64(m.padding())
	if body > l.maxBody {
		return &Error{
			Op: m.op.String(), Code: ErrTooLarge, Limit: uint64(l.maxBody),
			Text: fmt.Sprintf("the request has %d bytes, the daemon takes %d: send a shorter prompt, its hashes, or fewer chunks", body, l.maxBody),
		}
	}
	wire.SetBodyBytes(l.out[start:], uint32(body))
	return nil
}

// padding is how many zeros follow the payloads; a head has a multiple of 8.
func (m *message) padding() int { return int(-sum(m.payloads) & 7) }

// write writes p. A context that ends while the daemon does not read ends the
// call if nothing of the frame was sent yet, and the link otherwise.
func (l *link) write(ctx context.Context, sent bool, p []byte) (bool, error) {
	n, err := l.conn.TryWrite(p)
	sent = sent || n > 0
	if err == nil && n < len(p) {
		var cancel context.CancelFunc
		ctx, cancel = l.bound(ctx)
		defer cancel()
		stop := interrupt(ctx, l.conn.SetWriteDeadline)
		var m int
		m, err = l.conn.Write(p[n:])
		sent = sent || m > 0
		stop()
	}
	if err == nil {
		return sent, nil
	}
	if ctx.Err() != nil {
		err = ended(ctx)
	}
	if !sent && ctx.Err() != nil {
		return false, err
	}
	return sent, l.fail(fmt.Errorf("%w: %w", ErrDisconnected, err))
}

// interrupt makes a blocking read or write return when ctx ends. The function
// it returns undoes that.
func interrupt(ctx context.Context, setDeadline func(time.Time) error) func() {
	if ctx.Done() == nil {
		return func() {}
	}
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = setDeadline(time.Unix(1, 0))
		close(fired)
	})
	return func() {
		if !stop() {
			<-fired
			_ = setDeadline(time.Time{})
		}
	}
}

// fail ends the link; only the first reason counts, and is returned.
func (l *link) fail(err error) error {
	l.mu.Lock()
	if l.mu.err != nil {
		defer l.mu.Unlock()
		return l.mu.err
	}
	l.mu.err = err
	calls := l.mu.calls
	l.mu.calls = nil
	l.mu.Unlock()

	l.conn.Close()
	close(l.down)
	for _, c := range calls {
		c.err = err
		c.done <- struct{}{}
	}
	return err
}

// failure is why the link has failed.
func (l *link) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.err
}

// late are requests that wait for the next one. Commits go behind it if it leads:
// the daemon has work with them, and the others only give something back.
type late struct{ first, commits []byte }

// later registers a request that goes out with the next one, or with finish.
// On a link that is down the call has failed.
func (l *link) later(op wire.Op, req wire.Message, take func([]byte) error) *call {
	c := &call{op: op, done: make(chan struct{}, 1), take: take}
	if err := l.register(c); err != nil {
		c.err = err
		c.done <- struct{}{}
		return c
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	frames := &l.mu.late.first
	if op == wire.OpCommit {
		frames = &l.mu.late.commits
	}
	*frames = wire.AppendRequest(*frames, op, c.id, req)
	return c
}

// finish waits for the reply to a later request, and sends it first unless an
// earlier request took it along. Where ctx ends before, done is false: the request goes
// on, if need be with the next one. finish may be called again and again.
func (l *link) finish(ctx context.Context, c *call) (done bool, err error) {
	err = l.send(ctx, 0, nil)
	if err == nil {
		err = l.answered(ctx, c.op, c.done)
	}
	if err != nil {
		if !l.ending(c) {
			return false, err
		}
		<-c.done
	}
	c.done <- struct{}{}
	return true, c.err
}

// ending reports whether the reply to a call is being delivered at this moment, or the
// link has failed.
func (l *link) ending(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.taken || l.mu.err != nil
}

// keepLate takes back later requests that were not sent.
func (l *link) keepLate(unsent late) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.late.first = append(l.mu.late.first, unsent.first...)
	l.mu.late.commits = append(l.mu.late.commits, unsent.commits...)
}

// giveBack is a request whose reply nobody waits for: it gives back a job or a fill that came
// after its caller had left, or what a Writer has not written of a fill. A sweep sends it.
func (l *link) giveBack(op wire.Op, req wire.Message) {
	c := &call{op: op, done: make(chan struct{}, 1), left: true}
	if l.register(c) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.orphans = wire.AppendRequest(l.mu.orphans, op, c.id, req)
}

// sweep sends the orphans, after reading and without a role: the reader must
// not wait for a writer that waits for the daemon to read. Those that cannot
// be sent at once are left to the next sweep.
func (l *link) sweep() {
	for more := true; more; {
		l.mu.Lock()
		some := len(l.mu.orphans) > 0
		l.mu.Unlock()
		more = some && l.post()
	}
}

// post sends the orphans there are. It reports false, having kept them, if sending would have
// to wait.
func (l *link) post() bool {
	select {
	case <-l.writer:
	default:
		return false
	}
	defer func() { l.writer <- struct{}{} }()
	l.mu.Lock()
	frames := l.mu.orphans
	l.mu.orphans = nil
	l.mu.Unlock()
	n, err := l.conn.TryWrite(frames)
	switch {
	case err != nil:
		l.fail(fmt.Errorf("%w: %w", ErrDisconnected, err))
	case n == 0 && len(frames) > 0:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.mu.orphans = append(frames, l.mu.orphans...)
		return false
	case n < len(frames):
		_, err = l.write(context.Background(), true, frames[n:])
	}
	return err == nil
}

// DefaultTimeout is Options.Timeout where none is given.
const DefaultTimeout = 10 * time.Second

// ErrNoAnswer says that the daemon was silent for longer than Options.Timeout,
// and that the call's context had no deadline of its own.
var ErrNoAnswer = errors.New("the daemon does not answer: it is starting, stopped or overloaded, or a keeper holds its sockets")

// patience bounds calls whose context has no deadline.
type patience struct {
	timeout time.Duration // negative: no bound
	silent  error         // what such a call ends with
}

func newPatience(timeout time.Duration) patience {
	timeout = cmp.Or(timeout, DefaultTimeout)
	return patience{timeout: timeout, silent: fmt.Errorf("nothing came within %v: %w", timeout, ErrNoAnswer)}
}

// bound returns ctx, or where that has no deadline one that ends with the
// timeout. It is made only where a call is about to block: it costs more than
// a glance at the socket.
func (p *patience) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok || p.timeout < 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, p.timeout, p.silent)
}

// ended is the error of a call whose context has ended.
func ended(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, ErrNoAnswer) {
		return err
	}
	return ctx.Err()
}

// slow reports whether the answer to op waits for more than the daemon: for a
// disk, a bucket, or the loads of a job.
func slow(op wire.Op) bool {
	switch op {
	case wire.OpWait, wire.OpGet, wire.OpReserve, wire.OpDelete, wire.OpFlush, wire.OpWarm, wire.OpEvents:
		return true
	}
	return false
}

// answered returns when done yields, as await does. A call of a slow operation
// without a deadline goes on for as long as the daemon answers pings.
func (l *link) answered(ctx context.Context, op wire.Op, done <-chan struct{}) error {
	err := l.await(ctx, done)
	for slow(op) && errors.Is(err, ErrNoAnswer) && l.ping(ctx) == nil {
		err = l.await(ctx, done)
	}
	return err
}

func (l *link) ping(ctx context.Context) error {
	return l.do(ctx, wire.OpPing, wire.EmptyRequest{}, wire.EmptyReply{}.Decode, nil)
}

// await returns when done yields. Meanwhile it reads for all callers, unless
// another caller does. It returns the error of ctx or of the link.
func (l *link) await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-l.reader:
	default:
		var cancel context.CancelFunc
		ctx, cancel = l.bound(ctx)
		defer cancel()
		select {
		case <-done:
			return nil
		case <-l.down:
			return l.failure()
		case <-ctx.Done():
			return ended(ctx)
		case <-l.reader:
		}
	}
	err := l.readUntil(ctx, done)
	l.reader <- struct{}{}
	l.sweep()
	return err
}

// readUntil reads and dispatches frames until done yields.
func (l *link) readUntil(ctx context.Context, done <-chan struct{}) error {
	cancel, bounded := context.CancelFunc(func() {}), false
	defer func() { cancel() }()
	for {
		select {
		case <-done:
			return nil
		case <-l.down:
			return l.failure()
		default:
		}
		h, body, err := l.conn.TryReadFrame()
		if errors.Is(err, wire.ErrWouldBlock) {
			if !bounded {
				ctx, cancel = l.bound(ctx)
				bounded = true
			}
			stop := interrupt(ctx, l.conn.SetReadDeadline)
			h, body, err = l.conn.ReadFrame()
			stop()
		}
		if err != nil && ctx.Err() != nil {
			return ended(ctx)
		}
		if err := l.received(h, body, err); err != nil {
			return err
		}
	}
}

// received handles what a read returned. Its errors end the link.
func (l *link) received(h wire.Header, body []byte, err error) error {
	switch {
	case err == nil:
		err = l.dispatch(h, body)
	case errors.Is(err, wire.ErrFrameTooLarge):
		err = broken("%w", err)
	default:
		err = fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
	if err != nil {
		return l.fail(err)
	}
	return nil
}

// dispatch gives one frame to its job or call. Its errors end the link.
func (l *link) dispatch(h wire.Header, body []byte) error {
	if h.BodyBytes%8 != 0 {
		return broken("a %s of %d bytes, which is no multiple of 8", h.Kind, h.BodyBytes)
	}
	switch h.Kind {
	case wire.KindPush:
		return l.push(h, body)
	case wire.KindReply:
	default:
		return broken("it sent a %s", h.Kind)
	}
	l.mu.Lock()
	c := l.mu.calls[h.ID]
	delete(l.mu.calls, h.ID)
	if c != nil {
		c.taken = true
	}
	l.mu.Unlock()
	if c == nil {
		return broken("reply %d answers nothing", h.ID)
	}
	err := l.deliver(c, h, body)
	c.err = err
	c.done <- struct{}{}
	if errors.Is(err, ErrProtocol) {
		return err
	}
	return nil
}

// deliver hands the reply to the caller, or cleans up behind one that left.
func (l *link) deliver(c *call, h wire.Header, body []byte) error {
	if h.Op != c.op {
		return broken("reply to %s, where %s was asked", h.Op, c.op)
	}
	if h.Code != wire.CodeOK {
		var m wire.ErrorReply
		if err := m.Decode(body); err != nil {
			return broken("%w", err)
		}
		return refusalOf(c.op.String(), h.Code, &m)
	}
	var err error
	if !c.left {
		err = c.take(body)
	} else if c.undo != nil {
		err = c.undo(body)
	}
	if errors.Is(err, wire.ErrMalformed) {
		return broken("%w", err)
	}
	return err
}
