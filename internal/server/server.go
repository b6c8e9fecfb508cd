package server

import (
	"cmp"
	"context"
	"net"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/socket"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Options of a Server.
type Options struct {
	Store *store.Store
	Arena *arena.Arena

	Settings // the first ones; see Server.Set

	// Met is told of each client at its hello, whether it is to have the arena, and how old
	// its leases become. It says whether it may, and returns a function to call once the client has ended the connection,
	// which the end of the daemon does not. Nil: not wanted.
	Met func(conn net.Conn, maps bool, leaseAge time.Duration) (left func(), may bool)

	// Fronts names the spaces that are front ends', not clients'.
	Fronts map[key.SpaceID]string

	Limits Limits
	Memory *budget.Budget // what the connections cost outside the arena; nil = no bound

	Version string
	Epoch   uint64     // random for each start of the daemon
	Events  *index.Log // nil: off
	// Stats returns the daemon's numbers as a JSON object, for a client with these
	// rights.
	Stats func(wire.Rights) ([]byte, error)
	// Observe is told how long a request took until its reply was handed to the
	// socket; nil is not called.
	Observe func(op wire.Op, took time.Duration)
	// Asked is told of each prompt that a client asks for, once for a lookup and the
	// request that follows it, and Stored of each that a client makes room for. Nil: not
	// wanted. They keep nothing of a chain and must not block.
	Asked, Stored func(*key.Chain)
	// Ready is told how long a prefetch that found something took until its prefix would
	// not grow any more, and the farthest tier that a chunk of it came from. Nil: not
	// measured. It must not block.
	Ready func(from tier.Place, took time.Duration)
	Log   zerolog.Logger
}

// Prefetch is what a prefetch does where its request does not say.
type Prefetch struct {
	Policy        wire.WaitPolicy
	Deadline      time.Duration
	Per1024Tokens time.Duration // added for each 1,024 tokens that must come up
	WindowBytes   int64         // in flight for one job
}

// Limits bound what a client can cost. A zero field means the default.
type Limits struct {
	// Connections is how many there may be, those of front ends included: 4096.
	Connections int
	// UIDConnections is how many of them one user may have, or one host: all.
	UIDConnections int
	// AdminConnections is how many of them are kept for administrators: none.
	AdminConnections int
	// UIDJobs is how many jobs and fills one user may have: 16,384.
	UIDJobs int
	// HelloTimeout is how long a client has for its first frame: 10 s.
	HelloTimeout time.Duration
	// QueueBytes is how many bytes may wait for a client that does not read
	// (1 MiB), and StallTimeout for how long (30 s), before its connection is
	// closed. In that time a frame that has begun must get on, too.
	QueueBytes   int
	StallTimeout time.Duration
}

// Defaults of Limits.
const (
	helloTimeout = 10 * time.Second
	queueBytes   = 1 << 20
)

func (l Limits) orDefault() Limits {
	return Limits{
		Connections:      cmp.Or(l.Connections, 4096),
		UIDConnections:   cmp.Or(l.UIDConnections, l.Connections, 4096),
		AdminConnections: l.AdminConnections,
		UIDJobs:          cmp.Or(l.UIDJobs, 16<<10),
		HelloTimeout:     cmp.Or(l.HelloTimeout, helloTimeout),
		QueueBytes:       cmp.Or(l.QueueBytes, queueBytes),
		StallTimeout:     cmp.Or(l.StallTimeout, 30*time.Second),
	}
}

// Server serves connections. It is safe for concurrent use.
type Server struct {
	o          Options
	maxPayload int64         // bytes of one chunk
	ids        atomic.Uint64 // of jobs and fills
	sessionIDs atomic.Uint64
	catalog    *catalog
	models     models
	conflicts  conflicts
	revoked    revocations
	deadlines  deadlineStats
	recent     recent
	naming     naming
	hints      hints
	count      counters
	now        atomic.Pointer[Settings]
	users      users
	sessions   sessions
	shared     sync.Map      // jobs that every connection of their user may name, by id
	snapshots  chan struct{} // held by the snapshots under way
}

// New makes a server; Serve starts it.
func New(o Options) *Server {
	o.Limits = o.Limits.orDefault()
	s := &Server{o: o, catalog: newCatalog(), maxPayload: min(arena.MaxPayload, o.Arena.Stats().CapacityBytes), snapshots: make(chan struct{}, maxSnapshots)}
	s.now.Store(&o.Settings)
	s.users.limits = &s.o.Limits
	s.users.mu.byID = make(map[budget.Holder]*tenant)
	s.naming.server, s.naming.wake = s, make(chan struct{}, 1)
	s.o.Store.Operator.Distrusted().OnFound(s.naming.add)
	s.hints.server, s.hints.claims = s, hint.NewClaims(o.Store.Leases, o.Settings.Retain)
	s.hints.pauses.server, s.hints.pauses.wake = s, make(chan struct{}, 1)
	o.Store.RetainBy(s.hints.claims)
	s.sessions.mu.byID = make(map[uint64]*session)
	return s
}

// Serve accepts connections until ctx ends, then lets each finish the request
// it is at, closes it, and returns when everything they held has been given
// back. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var turns sync.WaitGroup
	turns.Go(func() { s.naming.run(ctx) })
	turns.Go(func() { s.hints.pauses.run(ctx) })
	turns.Go(func() { _ = s.hints.claims.Run(ctx) }) // until ctx ends
	err := socket.Serve(ctx, l, s.o.Log, s.admit)
	cancel()
	turns.Wait()
	return err
}

// admit counts a connection, or tells its client why there may be no more.
func (s *Server) admit(nc net.Conn) socket.Handler {
	u, err := s.enter(nc)
	if err != nil {
		// It fits an empty socket; who does not take it finds the socket closed.
		_, _ = nc.Write(appendError(nil, wire.OpHello, 0, err))
		return nil
	}
	return func(ctx context.Context, conn net.Conn) {
		if err := s.serveConn(ctx, conn, u); err != nil {
			s.users.leave(u)
		}
	}
}

// serveConn serves a connection that admit has counted. The error is of one that was
// not greeted, which its client was told, if it can be.
func (s *Server) serveConn(ctx context.Context, nc net.Conn, u *tenant) error {
	account, err := s.o.Memory.Open(nc, budget.Native, quietBytes)
	if err != nil {
		s.count.refused[refusedMemory].Add(1)
		return err
	}
	defer account.Close()
	c, err := open(ctx, s, nc, u, account)
	if err != nil {
		s.count.refused[refusedDenied].Add(1)
		s.o.Log.Debug().Err(err).Msg("connection refused")
		return err
	}
	s.count.connections.Add(1)
	defer s.sessions.remove(c.session)
	if e := c.session.log.Debug(); e.Enabled() {
		begun := time.Now()
		e.Uint64("connection", c.session.id).Uint32("uid", c.session.uid).Str("name", c.session.name).Bool("mapped", c.session.mapped).Msg("connected")
		defer func() {
			c.session.log.Debug().Uint64("connection", c.session.id).Uint32("uid", c.session.uid).Dur("after", time.Since(begun)).Msg("disconnected")
		}()
	}
	c.session.recheck() // the settings may have changed since it was opened
	c.serve(ctx)
	return nil
}

func (s *Server) took(op wire.Op, took time.Duration) {
	if s.o.Observe != nil {
		s.o.Observe(op, took)
	}
}

// Settings are the options that can change while a Server runs.
type Settings struct {
	Access *access.Policy // who may do what

	LeaseMaxAge time.Duration // of connections that are opened from now on
	PinMaxAge   time.Duration // of pins from now on
	Prefetch    Prefetch
	Retain      hint.ClaimLimits // of claims from now on

	ChunkTokens int    // of spaces that do not say
	Method      string // hash method of spaces that do not say
	SaveUnfull  bool   // a last, shorter chunk counts even if the request does not ask
}

// settings are the present ones. They are never changed, only replaced.
func (s *Server) settings() *Settings { return s.now.Load() }

// windowOf is what may be in flight for one job: no more than promotions may
// take of DRAM, for chunks read further ahead would only wait there for room, or
// take that of the chunks before them and be read again.
func windowOf(s *Server) int64 {
	return min(s.settings().Prefetch.WindowBytes, s.o.Store.Loader.LoadRoom())
}

// Set replaces the settings, which are the server's from then on: requests that
// have begun are answered as they were, later ones are judged by the new policy, on
// connections that are open too. Jobs of users that may not read the space any more
// end, with their leases, and so do fills of users that may not write it; pins stay
// until they are ended or too old. A connection whose user may not connect any more
// is closed, and one that has mapped the arena for a user that may not map it any
// more, each with a line in the log. A mapping cannot be taken back: it stays with
// the client's process. It is safe for concurrent use.
func (s *Server) Set(to Settings) {
	if old := s.settings().Access; reflect.DeepEqual(old, to.Access) {
		to.Access = old // what was judged by it stays so
	}
	changed := to.Access != s.settings().Access
	s.hints.claims.Set(to.Retain)
	s.now.Store(&to) // first: a connection that is not among the sessions yet finds it
	for _, c := range s.sessions.all() {
		c.recheck()
		if changed {
			c.revokeDenied()
		}
	}
}

// recheck closes a connection that would not be as it is by the present policy.
func (c *session) recheck() {
	p := c.server.settings().Access
	why := "the user of a client may not connect any more"
	switch {
	case p.Somewhere(c.uid) == 0:
	case c.mapped && !p.MayMap(c.uid):
		why = "a client has mapped the arena and may not any more; what is mapped stays so until its process ends"
	default:
		return
	}
	c.log.Warn().Uint32("uid", c.uid).Msg(why + "; its connection is closed")
	_ = c.conn.Close() // the session's reader ends, and gives back what it held
}

// lostRight is why a job or fill ends whose user has lost a right.
const lostRight = "its user may not use that space any more; see access"

// revokeDenied ends the jobs and fills that the present policy would not let begin.
// One that becomes the session's meanwhile sees to that itself.
func (c *session) revokeDenied() {
	c.whileOpen(func() {
		jobs, fills := c.live()
		for _, j := range jobs {
			j.revokeIfDenied()
		}
		for _, f := range fills {
			f.revokeIfDenied()
		}
	})
}

func (j *job) revokeIfDenied() {
	chains := slices.Concat(j.prompt.Chains...)
	for r := range chains {
		if !j.session.server.has(j.session.uid, access.Read, chains[r].Space) {
			j.revoke(lostRight)
			return
		}
	}
}

func (f *fill) revokeIfDenied() {
	for _, id := range f.spaces {
		if !f.session.server.has(f.session.uid, access.Write, id) {
			f.revoke(lostRight)
			return
		}
	}
}
