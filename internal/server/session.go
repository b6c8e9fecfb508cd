package server

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/semaphore"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/wire"
)

const (
	// maxLive is how many jobs and fills a connection may have, and how
	// many requests unanswered.
	maxLive = 1024
	// quietBytes is what a connection costs that holds nothing: its receive
	// buffer, two goroutines, its tables, and about as much in the kernel.
	quietBytes = 128 << 10
	// What a job or a fill costs while it is live, and each of its chunks: hash,
	// tokens, reference, and the state of its load.
	liveBytes, liveChunkBytes = 1 << 10, 96
	// jobBytes is what a job costs: that, and its goroutine while it loads.
	jobBytes = liveBytes + 6<<10
)

// session is one connection and everything it holds. Its reader answers the
// requests; what others may touch besides is here.
type session struct {
	server  *Server
	id      uint64  // among all connections of the daemon's life
	uid     uint32  // of the peer
	tenant  *tenant // of the same
	mapped  bool    // the peer has the arena's descriptor; never changed after hello
	left    func()  // to be called when the client has ended
	name    string  // as in its hello, for people
	conn    *wire.Conn
	account *budget.Account
	out     output
	// leaseAge is the age that hello told the client: a shorter one would find it
	// renewing too late.
	leaseAge time.Duration
	puts     wire.PutMode
	maxReply int   // bytes of the largest body that the client takes
	credit   int64 // bytes of bodies of requests that it may have unanswered
	pushes   bool
	owner    ledger.Owner // ledger.Daemon until it asks for something to hold, set under mu; then never changed
	staging  *staging     // with staged puts; otherwise nil
	log      zerolog.Logger

	flushed flushMark           // as of this connection's last flush
	inline  *semaphore.Weighted // room for the copies of gets that wait

	waiting sync.WaitGroup // goroutines of this connection
	under   atomic.Int64   // bytes of the bodies of the requests in mu.waiting
	warms   atomic.Int64   // warms under way
	pins    atomic.Bool    // it has pinned something
	ctx     context.Context

	mu struct {
		sync.Mutex
		closed  bool
		jobs    map[uint64]*job
		fills   map[uint64]*fill
		waiting map[uint64]waiting // requests that a goroutine will answer, by id
	}
}

// newSession makes the session of a connection that holds nothing.
func newSession(s *Server, conn *wire.Conn, u *tenant, account *budget.Account) *session {
	c := &session{server: s, id: s.sessionIDs.Add(1), conn: conn, account: account, log: s.o.Log, tenant: u, inline: semaphore.NewWeighted(maxInline), left: func() {}}
	c.out = output{conn: conn, account: account, limits: &s.o.Limits, spawn: c.waiting.Go}
	c.out.pushed.Account = account
	c.mu.jobs, c.mu.fills, c.mu.waiting = make(map[uint64]*job), make(map[uint64]*fill), make(map[uint64]waiting)
	c.maxReply, c.credit = wire.MaxBodyBytes, maxCredit
	return c
}

// whileOpen runs f, the work of a timer, unless the connection is being closed:
// then close gives everything back. close waits for an f that has begun.
func (c *session) whileOpen(f func()) {
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

// close gives back everything. The reader has stopped, and the connection's
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
	for id := range jobs {
		c.server.shared.Delete(id)
	}
	c.teardown()
	c.unpin()                                   // a job may have pinned something until now
	c.server.o.Store.Leases.CloseOwner(c.owner) // another connection may still be letting go of a job
	c.server.users.leave(c.tenant)
}

// isClosed reports whether the session gives back all it has, and is given nothing.
func (c *session) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.closed
}

// push sends the newest state of a job to a client that takes pushes. Another connection
// may have changed the job after this one was closed.
func (c *session) push(j *job) {
	if c.pushes {
		c.whileOpen(func() { c.out.push(j) })
	}
}

// teardown waits for the goroutines of the connection, and closes the staging
// window and the peer that they used.
func (c *session) teardown() {
	c.waiting.Wait()
	if c.staging != nil {
		c.staging.close()
	}
}

// sessions are the connections that are greeted and served. The mutex is a leaf.
type sessions struct {
	mu struct {
		sync.Mutex
		byID map[uint64]*session
	}
}

// add makes a connection known; remove ends that.
func (ss *sessions) add(c *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.mu.byID[c.id] = c
}

func (ss *sessions) remove(c *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.mu.byID, c.id)
}

// get is the connection of an id; nil if there is none.
func (ss *sessions) get(id uint64) *session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.mu.byID[id]
}

// all lists the connections by age.
func (ss *sessions) all() (list []*session) {
	ss.mu.Lock()
	list = slices.Collect(maps.Values(ss.mu.byID))
	ss.mu.Unlock()
	slices.SortFunc(list, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
	return list
}

// len is how many connections are served now.
func (ss *sessions) len() int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return len(ss.mu.byID)
}

// held finds a fill of the connection, or a job that it may name: its own, or one that
// another connection of its user shares.
func (c *session) held(id uint64) (*job, *fill) {
	c.mu.Lock()
	j, f := c.mu.jobs[id], c.mu.fills[id]
	c.mu.Unlock()
	if j != nil || f != nil {
		return j, f
	}
	if j, is := c.server.shared.Load(id); is && j.(*job).session.uid == c.uid {
		return j.(*job), nil
	}
	return nil, nil
}

// live lists the jobs and fills of a connection.
func (c *session) live() (jobs []*job, fills []*fill) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.mu.jobs)), slices.Collect(maps.Values(c.mu.fills))
}

// holds is what a connection has leased and pinned, as budgets count it.
func (c *session) holds() (leased, pinned uint64) {
	c.mu.Lock()
	owner, of := c.owner, c.server.o.Store.Leases.OwnerBytes
	c.mu.Unlock()
	if owner == ledger.Daemon {
		return 0, 0
	}
	return uint64(of(owner, ledger.Lease)), uint64(of(owner, ledger.Pin))
}

// revokeAll frees all that a connection holds, and returns how many chunks
// that was. The connection stays and may hold something else.
func (c *session) revokeAll() (n int) {
	c.whileOpen(func() {
		jobs, fills := c.live()
		for _, j := range jobs {
			n += j.revoke("an administrator wants its memory")
		}
		for _, f := range fills {
			n += f.revoke("an administrator wants its memory")
		}
		n += c.unpin()
	})
	return n
}

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
	if err := c.spent.Add(asyncBytes); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(c.session.ctx)
	if err := c.session.waits(h, cancel); err != nil {
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
	c.session.mu.Lock()
	w, waits := c.session.mu.waiting[req.ID]
	c.session.mu.Unlock()
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
	c.spent = budget.Held{Account: c.session.account}
	c.session.waiting.Go(func() {
		defer spent.Set(0) //nolint:errcheck // it releases
		do(c.session.ctx)
	})
}

// asyncReply answers the request at hand with what do returns.
func (c *reader) asyncReply(h wire.Header, do func(ctx context.Context) (wire.Message, error)) (wire.Message, error) {
	start := time.Now()
	return nil, c.async(h, func(ctx context.Context) {
		m, err := do(ctx)
		c.session.answerAsync(h, m, asCancelled(ctx, err))
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
	frame := c.appendReply(nil, h, m, err)
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

// appendReply appends the reply to a request with ok, or refuses it with err or where the
// client has agreed to less.
func (c *session) appendReply(dst []byte, h wire.Header, m wire.Message, err error) []byte {
	if err != nil {
		return c.appendRefusal(dst, h, err)
	}
	out := wire.AppendReply(dst, h.Op, h.ID, m)
	if n := len(out) - len(dst) - wire.HeaderBytes; n > c.maxReply {
		return c.appendRefusal(out[:len(dst)], h, refuse(wire.CodeTooLarge, "the reply has %d bytes, and the largest that was agreed to is %d; agree on more in hello", n, c.maxReply))
	}
	return out
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
		base.Await(ctx, full)
	}
}
