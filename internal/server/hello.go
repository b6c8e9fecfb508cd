package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/socket"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

const (
	// defaultStaging is the window of a client that names no size, and
	// maxStaging the most one gets: what fills may hold is bounded by the
	// budget anyway.
	defaultStaging = 64 << 20
	maxStaging     = 1 << 30
)

// hello reads the first frame and answers it. On an error the client has been
// told, if it can be.
func (c *reader) hello() error {
	if err := turnAwayRedis(c.session); err != nil {
		return err
	}
	h, body, err := c.session.conn.ReadFrame()
	if err != nil {
		if errors.Is(err, wire.ErrFrameTooLarge) {
			c.session.out.send(wire.AppendError(nil, wire.OpHello, 0, wire.CodeTooLarge, wire.Refusal(wire.CodeTooLarge, err.Error())))
		}
		return err
	}
	reply, files, err := c.greet(h, body)
	if err != nil {
		if errors.Is(err, wire.ErrMalformed) || codeOf(err) == wire.CodeBadRequest {
			c.server.count.malformed.Add(1) // others are well-formed, and refused
		}
		c.session.out.send(appendError(nil, h.Op, h.ID, err))
		return err
	}
	c.server.sessions.add(c.session)
	return c.session.conn.WriteFiles(wire.AppendReply(nil, wire.OpHello, h.ID, reply), files...)
}

func (c *reader) greet(h wire.Header, body []byte) (*wire.HelloReply, []*os.File, error) {
	req, err := helloOf(h, body)
	if err != nil {
		return nil, nil, err
	}
	o, now := &c.server.o, c.server.settings()
	if c.session.uid, err = now.admit(c.session.conn.NetConn()); err != nil {
		return nil, nil, err
	}
	c.rights.judge()
	c.session.name, c.session.leaseAge = req.Name, now.LeaseMaxAge
	c.session.log = o.Log.With().Str("client", req.Name).Logger()
	reply := &wire.HelloReply{
		Version: wire.Version, Rights: wire.Rights(c.rights.somewhere), Epoch: o.Epoch, Connection: c.session.id,
		MaxPayload: uint32(c.server.maxPayload), Limits: limitsOf(c.server), Server: o.Version,
	}
	c.session.agree(req, reply)
	if req.HasSpace {
		if reply.Space, err = c.rights.openSpaceOf(req.Space); err != nil {
			return nil, nil, err
		}
		reply.HasSpace = true
	}
	files, err := c.session.grant(&c.rights, req, reply)
	return reply, files, err
}

// helloOf reads the first frame of a client.
func helloOf(h wire.Header, body []byte) (*wire.HelloRequest, error) {
	if h.Kind != wire.KindRequest || h.Op != wire.OpHello {
		return nil, refuse(wire.CodeBadRequest, "the first frame is %s %s; start with hello", h.Op, h.Kind)
	}
	req := new(wire.HelloRequest)
	if err := req.Decode(body); err != nil {
		return nil, err
	}
	if !req.Speaks(wire.Version) {
		return nil, refuse(wire.CodeVersion, "the client speaks versions %d to %d, the daemon %d; update the older one", req.MinVersion, req.MaxVersion, wire.Version)
	}
	return req, nil
}

// agree settles how large frames may be.
func (c *session) agree(req *wire.HelloRequest, reply *wire.HelloReply) {
	between := func(n uint32) uint32 {
		if n == 0 {
			return wire.MaxBodyBytes
		}
		return min(max(n, wire.LeastBodyBytes), wire.MaxBodyBytes) &^ 7
	}
	reply.MaxRequest, reply.MaxReply = between(req.MaxRequest), between(req.MaxReply)
	reply.Credit = uint64(reply.MaxRequest)
	if req.Credit > reply.Credit {
		reply.Credit = min(req.Credit, maxCredit)
	}
	c.conn.SetMaxBody(reply.MaxRequest)
	c.maxReply, c.credit = int(reply.MaxReply), int64(reply.Credit)
}

// maxCredit is the most that a client may have sent and not had answered: the largest
// request, and as much again of others.
const maxCredit = 2 * wire.MaxBodyBytes

// limitsOf is what a client is told.
func limitsOf(s *Server) wire.Limits {
	o, now := &s.o, s.settings()
	millis := func(d time.Duration) uint32 { return uint32(min(d.Milliseconds(), math.MaxUint32)) }
	micros := func(d time.Duration) uint32 { return uint32(min(d.Microseconds(), math.MaxUint32)) }
	return wire.Limits{
		LeaseMillis: millis(now.LeaseMaxAge), PinMillis: millis(now.PinMaxAge), PrefetchMillis: millis(now.Prefetch.Deadline),
		PrefetchMicrosPer1024: micros(now.Prefetch.Per1024Tokens),
		HelloMillis:           millis(o.Limits.HelloTimeout), StallMillis: millis(o.Limits.StallTimeout),
		Requests: maxLive, Jobs: maxLive, Fills: maxLive, Pins: hint.MaxPins, Spaces: maxLive,
		UserJobs: uint32(o.Limits.UIDJobs), UnreadBytes: uint32(o.Limits.QueueBytes),
		Warms:       maxWarms,
		ChunkTokens: uint32(now.ChunkTokens),
	}
}

// grant gives the client those features that it wants and may have.
func (c *session) grant(r *rights, req *wire.HelloRequest, reply *wire.HelloReply) ([]*os.File, error) {
	o := &c.server.o
	var files []*os.File
	if req.Wants&wire.FeaturePushes != 0 {
		c.pushes = true
		reply.Granted |= wire.FeaturePushes
	}
	file := o.Arena.File()
	wants := req.Wants&wire.FeatureArena != 0 && file != nil
	c.mapped = wants && r.policy.MayMap(c.uid)
	if c.mapped && req.Wants&wire.FeatureKeep != 0 && o.Arena.Populating() {
		return nil, refuse(wire.CodeStarting, "DRAM is being populated: a driver that page-locks it would do that in the client's place; try again in a moment")
	}
	if o.Met != nil {
		c.left, c.mapped = o.Met(c.conn.NetConn(), c.mapped, c.leaseAge)
	}
	if !wants {
		return nil, nil
	}
	if c.mapped {
		files = append(files, file)
		reply.Granted |= wire.FeatureArena
		reply.ArenaBytes = uint64(o.Arena.Usable())
	}
	if r.somewhere&access.Write != 0 {
		window, err := c.grantPuts(req, reply)
		if err != nil {
			return nil, err
		}
		if window != nil {
			files = append(files, window)
		}
	}
	reply.Puts = c.puts
	reply.Descriptors = uint32(len(files))
	return files, nil
}

func (c *session) grantPuts(req *wire.HelloRequest, reply *wire.HelloReply) (*os.File, error) {
	if req.Wants&wire.FeatureStaging == 0 {
		return nil, nil
	}
	n := min(cmp.Or(req.StagingBytes, defaultStaging), maxStaging)
	keeps := req.Wants & wire.FeatureKeep
	st, err := newStaging(arena.RoundUp(int64(n)), keeps != 0, &c.server.count.staging, c.whileOpen)
	if err != nil {
		return nil, fmt.Errorf("hello: %w", err)
	}
	c.staging, c.puts = st, wire.PutStaged
	reply.Granted |= wire.FeatureStaging | keeps
	reply.StagingBytes = n
	return st.window.File(), nil
}

// spaces are the open spaces of a connection; handles are indices. They are charged
// until the connection ends.
type spaces struct {
	server  *Server
	account *budget.Account
	list    []openSpace
}

// openSpaceBytes is what an open space costs besides its model.
const openSpaceBytes = 1 << 10

// scratchBytes is the memory that the builders share.
func (s *spaces) scratchBytes() int {
	if len(s.list) == 0 {
		return 0
	}
	return s.list[0].builder.ScratchBytes()
}

type openSpace struct {
	builder *key.Builder
	info    wire.SpaceInfo
	model   string
	rights  access.Rights // of the session's user, by the policy that was asked last
}

// open returns the handle of a space in which the session has these rights.
func (s *spaces) open(sp key.Space, rights access.Rights) (wire.SpaceInfo, error) {
	now := s.server.settings()
	sp.ChunkTokens, sp.Method = cmp.Or(sp.ChunkTokens, now.ChunkTokens), cmp.Or(sp.Method, key.Method(now.Method))
	b, err := key.NewBuilder(sp)
	if err != nil {
		return wire.SpaceInfo{}, refuse(wire.CodeBadRequest, "%v", err)
	}
	if o := s.of(b.Space()); o != nil {
		return o.info, nil
	}
	if len(s.list) >= maxLive {
		return wire.SpaceInfo{}, refuse(wire.CodeOverBudget, "this connection has %d spaces open; use another connection", maxLive)
	}
	if err := s.account.Charge(openSpaceBytes + int64(len(sp.Model))); err != nil {
		return wire.SpaceInfo{}, err
	}
	if len(s.list) > 0 {
		b.Share(s.list[0].builder)
	}
	info := wire.SpaceInfo{Handle: uint32(len(s.list)), ID: b.Space(), ChunkTokens: uint32(sp.ChunkTokens)}
	s.list = append(s.list, openSpace{b, info, sp.Model, rights})
	if s.server.catalog.open(info.ID, sp, s.server.models.of(sp.Model)) {
		s.server.naming.add(info.ID)
	}
	s.server.o.Store.Operator.OpenSpace(info.ID, sp.Model)
	return info, nil
}

func (s *spaces) get(handle uint32) (openSpace, error) {
	if int(handle) >= len(s.list) {
		return openSpace{}, refuse(wire.CodeUnknownSpace, "space %d is not open on this connection; open_space first", handle)
	}
	return s.list[handle], nil
}

// close gives the open spaces up.
func (s *spaces) close() {
	for _, o := range s.list {
		s.server.catalog.close(o.info.ID)
		s.server.o.Store.Operator.CloseSpace(o.info.ID)
	}
}

// of is an open space; nil if it is not open here.
func (s *spaces) of(id key.SpaceID) *openSpace {
	for i := range s.list {
		if s.list[i].info.ID == id {
			return &s.list[i]
		}
	}
	return nil
}

// notForRedis is what a Redis client is told, in its own protocol.
const notForRedis = "-ERR this is kvstored's own socket; Redis clients belong to listen.resp\r\n"

// redisBytes is how much tells a Redis client: its shortest command has more.
const redisBytes = 4

// turnAwayRedis looks at what a connection begins with, and tells a Redis client
// that it has the wrong socket: it would wait for an answer to less than a frame.
func turnAwayRedis(c *session) error {
	start, err := c.conn.Peek(redisBytes)
	if err != nil || !likeRedis([redisBytes]byte(start)) {
		return err
	}
	c.server.count.malformed.Add(1)
	c.out.send([]byte(notForRedis))
	return errors.New("the client speaks Redis's protocol")
}

// likeRedis reports whether a Redis client may begin so: with the length of an
// array ("*1\r\n") or a command typed by hand ("PING", "get ").
//
// No frame is taken for that. It begins with the length of its body, whose
// highest byte comes fourth. That byte is at least 10, a line feed, in all that
// is accepted here, so the body would have at least 160 MiB; a hello has at most
// wire.MaxHelloBytes, 128 KiB, and every other frame wire.MaxBodyBytes, 72 MiB.
func likeRedis(start [redisBytes]byte) bool {
	if first := start[0]; first != '*' && !letter(first) {
		return false
	}
	for _, b := range start[1:] {
		switch {
		case letter(b), '0' <= b && b <= '9', b == '-', b == ' ', b == '\r', b == '\n':
		default:
			return false
		}
	}
	return true
}

func letter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }

const (
	// startingMillis is after what time a client comes back that was told that the
	// daemon is starting: a tenth of what the smallest arena takes on a slow machine.
	startingMillis = 100
	// startingTimeout is how long a client has for its hello meanwhile, and
	// startingGrace when the daemon is ready.
	startingTimeout = time.Second
	startingGrace   = 100 * time.Millisecond
	// startingHellos is how many are read at a time; others wait.
	startingHellos = 64
)

// Starting refuses hello with starting on each connection of l, whose connections are
// those of a Unix socket, until ctx ends. It closes l, and returns when all that were
// accepted have been answered. A client whose hello does not come in time is told the
// same: one that a busy machine has kept from writing it connects again.
func Starting(ctx context.Context, l net.Listener, log zerolog.Logger) error {
	turns := make(chan struct{}, startingHellos)
	serve := func(ctx context.Context, conn net.Conn) {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		case <-ctx.Done():
			tellStarting(conn, 0)
			return
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now().Add(startingGrace)) })
		defer stop()
		refuseHello(conn)
	}
	return socket.Serve(ctx, l, log, func(net.Conn) socket.Handler { return serve })
}

// refuseHello tells a client that the daemon is starting, or why its hello is refused.
func refuseHello(nc net.Conn) {
	conn, err := wire.NewConn(nc)
	if err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(startingTimeout)) // these fail only on a closed socket, as the read will
	_ = conn.SetWriteDeadline(time.Now().Add(startingTimeout))
	h, body, err := conn.ReadFrame()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		tellStarting(nc, 0)
		return
	case err != nil:
		return
	}
	if _, err = helloOf(h, body); err == nil {
		tellStarting(nc, h.ID)
		return
	}
	_, _ = conn.Write(appendError(nil, wire.OpHello, h.ID, err)) // a client that has left is told nothing
}

// tellStarting refuses a hello, or with the id 0 one that has not come, and says when to
// come back.
func tellStarting(nc net.Conn, id uint64) {
	err := refuse(wire.CodeStarting, "the daemon is starting: it takes its memory and opens its disk; try again in a moment")
	reply := replyOf(err, wire.CodeStarting, err.Error())
	reply.AfterMillis = startingMillis
	_ = nc.SetWriteDeadline(time.Now().Add(startingGrace))                             // it fits an empty socket
	_, _ = nc.Write(wire.AppendError(nil, wire.OpHello, id, wire.CodeStarting, reply)) // a client that has left is told nothing
}
