package server

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/extent"
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
func (c *reader) hello(uc *net.UnixConn) error {
	if err := turnAwayRedis(c.session); err != nil {
		return err
	}
	h, body, err := c.conn.ReadFrame()
	if err != nil {
		if errors.Is(err, wire.ErrFrameTooLarge) {
			c.out.send(wire.AppendError(nil, wire.OpHello, 0, wire.StatusTooLarge, err.Error()))
		}
		return err
	}
	reply, files, err := c.greet(h, body, uc)
	if err != nil {
		status := statusOf(err)
		if status == wire.StatusBadRequest || status == wire.StatusUnknownOption {
			c.server.count.malformed.Add(1) // others are well-formed, and refused
		}
		c.out.send(wire.AppendError(nil, h.Op, h.ID, status, err.Error()))
		return err
	}
	return c.conn.WriteFiles(wire.AppendReply(nil, wire.OpHello, h.ID, reply), files...)
}

func (c *reader) greet(h wire.Header, body []byte, uc *net.UnixConn) (*wire.HelloReply, []*os.File, error) {
	if h.Kind != wire.KindRequest || h.Op != wire.OpHello {
		return nil, nil, refuse(wire.StatusBadRequest, "the first frame is %s %s; start with hello", h.Op, h.Kind)
	}
	var req wire.HelloRequest
	if err := req.Decode(body); err != nil {
		return nil, nil, err
	}
	if !req.Speaks(wire.Version) {
		return nil, nil, refuse(wire.StatusVersion, "the client speaks versions %d to %d, the daemon %d; update the older one", req.MinVersion, req.MaxVersion, wire.Version)
	}
	o, now := &c.server.o, c.server.settings()
	var err error
	if c.uid, err = now.admit(c.conn.SyscallConn()); err != nil {
		return nil, nil, err
	}
	c.judge()
	c.name, c.leaseAge = req.Name, now.LeaseMaxAge
	c.log = o.Log.With().Str("client", req.Name).Logger()
	reply := &wire.HelloReply{
		Version: wire.Version, Rights: wire.Rights(c.judged.somewhere), Epoch: o.Epoch,
		MaxBodyBytes: wire.MaxBodyBytes, MaxPayloadBytes: wire.MaxPayloadBytes,
		LeaseMillis: uint32(c.leaseAge.Milliseconds()), Server: o.Version,
	}
	if req.HasSpace {
		if reply.Space, err = c.openSpaceOf(req.Space); err != nil {
			return nil, nil, err
		}
		reply.HasSpace = true
	}
	files, err := c.grant(&req, reply, uc)
	return reply, files, err
}

// grant gives the client those features that it wants and may have.
func (c *reader) grant(req *wire.HelloRequest, reply *wire.HelloReply, uc *net.UnixConn) ([]*os.File, error) {
	o := &c.server.o
	var files []*os.File
	if req.Wants&wire.FeaturePushes != 0 {
		c.pushes = true
		reply.Granted |= wire.FeaturePushes
	}
	file := o.Arena.File()
	if req.Wants&wire.FeatureArena == 0 || file == nil {
		return nil, nil
	}
	if c.mapped = c.judged.policy.MayMap(c.uid); c.mapped {
		files = append(files, file)
		reply.Granted |= wire.FeatureArena
		reply.ArenaBytes = uint64(o.Arena.Stats().CapacityBytes)
	}
	if c.judged.somewhere&access.Write != 0 {
		window, err := c.grantPuts(req, reply, uc)
		if err != nil {
			return nil, err
		}
		if window != nil {
			files = append(files, window)
		}
	}
	reply.Puts = c.puts
	reply.Descriptors = uint8(len(files))
	return files, nil
}

func (c *reader) grantPuts(req *wire.HelloRequest, reply *wire.HelloReply, uc *net.UnixConn) (*os.File, error) {
	o := &c.server.o
	if o.Direct && c.mapped && req.Wants&wire.FeatureDirect != 0 {
		peer, err := arena.PeerOf(uc)
		if err != nil {
			return nil, fmt.Errorf("hello: direct puts need to know when the client's process ends: %w", err)
		}
		c.peer, c.puts = peer, wire.PutDirect
		reply.Granted |= wire.FeatureDirect
		return nil, nil
	}
	if req.Wants&wire.FeatureStaging == 0 {
		return nil, nil
	}
	n := req.StagingBytes
	if n == 0 {
		n = defaultStaging
	}
	n = min(n, maxStaging)
	st, err := newStaging(extent.RoundUp(int64(n)), &c.server.count.staging, c.whileOpen)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil // inline only
	}
	if err != nil {
		return nil, fmt.Errorf("hello: %w", err)
	}
	c.staging, c.puts = st, wire.PutStaged
	reply.Granted |= wire.FeatureStaging
	reply.StagingBytes = n
	return st.window.File(), nil
}

// spaces are the open spaces of a connection; handles are indices.
type spaces struct {
	server *Server
	list   []openSpace
}

type openSpace struct {
	builder *key.Builder
	info    wire.SpaceInfo
	model   string
	rights  access.Rights // of the session's user, by its judged policy
}

// open returns the handle of a space in which the session has these rights.
func (s *spaces) open(sp key.Space, rights access.Rights) (wire.SpaceInfo, error) {
	if sp.ChunkTokens == 0 {
		sp.ChunkTokens = s.server.settings().ChunkTokens
	}
	if sp.Method == "" {
		sp.Method = key.Method(s.server.settings().Method)
	}
	b, err := key.NewBuilder(sp)
	if err != nil {
		return wire.SpaceInfo{}, refuse(wire.StatusBadRequest, "%v", err)
	}
	for _, o := range s.list {
		if o.info.ID == b.Space() {
			return o.info, nil
		}
	}
	if len(s.list) >= maxLive {
		return wire.SpaceInfo{}, refuse(wire.StatusOverBudget, "this connection has %d spaces open; use another connection", maxLive)
	}
	info := wire.SpaceInfo{Handle: uint32(len(s.list)), ID: b.Space(), ChunkTokens: uint32(sp.ChunkTokens)}
	s.list = append(s.list, openSpace{b, info, sp.Model, rights})
	s.server.catalog.open(info.ID, sp)
	s.server.o.Stack.OpenSpace(info.ID, sp.Model)
	return info, nil
}

func (s *spaces) get(handle uint32) (openSpace, error) {
	if int(handle) >= len(s.list) {
		return openSpace{}, refuse(wire.StatusUnknownSpace, "space %d is not open on this connection; open_space first", handle)
	}
	return s.list[handle], nil
}

// close gives the open spaces up.
func (s *spaces) close() {
	for _, o := range s.list {
		s.server.catalog.close(o.info.ID)
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
