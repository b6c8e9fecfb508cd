package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/socket"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// Client is a connection to a daemon. It is safe for concurrent use.
type Client struct {
	link  *link
	maps  mappings
	hello wire.HelloReply
	space *Space // of Dial, or nil

	mu struct {
		sync.Mutex
		jobs   map[uint64]*Job // live ones, for pushes
		events *eventStream    // of the call of Events under way
	}
}

// Close ends the connection: jobs, leases and fills go back to the daemon, and
// the memory it shared disappears. Calls under way return ErrClosed. The error
// is always nil.
func (c *Client) Close() error {
	c.link.fail(ErrClosed)
	c.maps.close()
	return nil
}

// Done is closed when the connection has ended: closed here, by the daemon, or
// by an error.
func (c *Client) Done() <-chan struct{} { return c.link.down }

// Space is the space given to Dial, nil if none was.
func (c *Client) Space() *Space { return c.space }

// Server is the version of the daemon, for people to read.
func (c *Client) Server() string { return c.hello.Server }

// Epoch is random for each start of the daemon: where it differs from that of
// an earlier connection, chunks that were only in DRAM then are gone.
func (c *Client) Epoch() uint64 { return c.hello.Epoch }

// Rights are what the daemon lets this process's user do.
func (c *Client) Rights() Rights { return c.hello.Rights }

// PutMode says how Reserve and Commit move payloads here.
func (c *Client) PutMode() PutMode { return c.hello.Puts }

// Mapped reports whether hits are read from shared memory.
func (c *Client) Mapped() bool { return c.hello.Granted&wire.FeatureArena != 0 }

// LeaseAge is the greatest age of a lease that is not renewed.
func (c *Client) LeaseAge() time.Duration {
	return time.Duration(c.hello.Limits.LeaseMillis) * time.Millisecond
}

// Ping asks for an empty answer.
func (c *Client) Ping(ctx context.Context) error {
	return c.link.ping(ctx)
}

// OpenSpace opens a further space on the connection, for example one per rank.
func (c *Client) OpenSpace(ctx context.Context, s key.Space) (*Space, error) {
	if err := s.Validate(); err != nil {
		return nil, refuse("open_space", ErrBadRequest, "%v", err)
	}
	var m wire.OpenSpaceReply
	if err := c.link.do(ctx, wire.OpOpenSpace, &wire.OpenSpaceRequest{Space: s}, m.Decode, nil); err != nil {
		return nil, err
	}
	return &Space{m.Space}, nil
}

// Distrust has everything that is stored in a space be a miss, for all clients, until an
// administrator says `kvstored forget --distrust`. It takes RightWrite there.
func (c *Client) Distrust(ctx context.Context, s key.Space) error {
	return c.link.do(ctx, wire.OpOpenSpace, &wire.OpenSpaceRequest{Space: s, Distrust: true}, new(wire.OpenSpaceReply).Decode, nil)
}

// Lookup says how much of a prompt is there, in the given tiers (0 means all).
// It takes no lease: the answer may be old when it arrives.
func (c *Client) Lookup(ctx context.Context, p Prompt, search Tiers) (Match, error) {
	return c.LookupWith(ctx, p, LookupOptions{Search: search})
}

// LookupOptions say what a lookup is about besides a prompt in its space.
type LookupOptions struct {
	Search Tiers // 0 means all
	// Ranks are the spaces of the other ranks of a tensor-parallel group: a chunk counts
	// only if all have it, and where the farthest of them is.
	Ranks []*Space
	// Groups are those of a hybrid model: how long a prefix all of them can use. The first
	// is full, and in the space of the prompt. Of each further rank Ranks has the spaces of
	// all groups.
	Groups  []Group
	Lengths int  // usable lengths of a hybrid model to name, the longest first, at most 4096
	Why     bool // why part of the prompt is missing; see Match.Missing
}

// LookupWith is Lookup with options.
func (c *Client) LookupWith(ctx context.Context, p Prompt, o LookupOptions) (out Match, err error) {
	shared := wire.Shared{Ranks: handles(o.Ranks), Groups: groupsOf(o.Groups), Lengths: uint32(max(0, o.Lengths)), Grain: p.grain(), Why: o.Why}
	ch, err := c.chain(wire.OpLookup, &p)
	if err != nil {
		return out, err
	}
	var m wire.LookupReply
	err = c.link.do(ctx, wire.OpLookup, &wire.LookupRequest{Chain: ch, Search: o.Search, Shared: shared}, m.Decode, nil)
	out = matchOf(&m.Match, m.Worth)
	out.Grouped, out.Missing = groupedOf(m.Grouped), m.Missing
	return out, err
}

// handles are spaces on the wire.
func handles(spaces []*Space) wire.U32s {
	if len(spaces) == 0 {
		return nil
	}
	out := make([]uint32, len(spaces))
	for i, s := range spaces {
		out[i] = s.info.Handle
	}
	return wire.ViewU32s(out)
}

// Stats returns the daemon's counters as a JSON object.
func (c *Client) Stats(ctx context.Context) (json.RawMessage, error) {
	var out json.RawMessage
	err := c.link.do(ctx, wire.OpStats, wire.EmptyRequest{}, func(body []byte) error {
		var m wire.StatsReply
		err := m.Decode(body)
		out = slices.Clone(m.JSON)
		return err
	}, nil)
	return out, err
}

// push is called by the reader. Jobs that ended here may still be pushed.
func (c *Client) push(h wire.Header, body []byte) error {
	if h.Op == wire.OpEvents {
		c.mu.Lock()
		s := c.mu.events
		c.mu.Unlock()
		if s == nil || s.id.Load() != h.ID {
			return nil
		}
		return s.update(body)
	}
	if h.Op != wire.OpPrefetch {
		return nil // from a newer daemon
	}
	c.mu.Lock()
	j := c.mu.jobs[h.ID]
	c.mu.Unlock()
	if j == nil {
		return nil
	}
	return j.update(body)
}

// Options say what a connection is for. The zero value is a good start.
type Options struct {
	Name  string     // who this is, for the people who run the daemon
	Space *key.Space // opened at once, and used by prompts that name none
	// StagingBytes is how much memory puts may use on their way; 0 leaves it
	// to the daemon. A Reserve grants no more than is free of it.
	StagingBytes int64
	// Inline asks for no shared memory at all: payloads cross the socket.
	Inline bool
	// Timeout bounds Dial and every call whose context has no deadline: the
	// daemon is given up, with ErrNoAnswer, when nothing came for so long. A
	// call that waits for more than the daemon (Job.Wait, Flush, Get and
	// their like) goes on for as long as it answers pings. 0 means
	// DefaultTimeout, negative no bound.
	Timeout time.Duration
	// Dialer connects in place of Dial's own way to the socket: by a descriptor that was
	// handed over, say, by a process that stays: its end counts as that of this one where the
	// daemon has just ended. The connection is one of the system's Unix sockets, or one within
	// this process as kvstored's tests have it. Nil: the socket's path is dialled.
	Dialer func(ctx context.Context, socket string) (net.Conn, error)
}

// Dial connects to the daemon that listens at socket. While that is starting Dial waits
// for it, until ctx ends or Options.Timeout has passed; then the error is ErrStarting.
func Dial(ctx context.Context, socket string, o Options) (*Client, error) {
	patience := newPatience(o.Timeout)
	ctx, cancel := patience.bound(ctx)
	defer cancel()
	var starting error
	for {
		c, err := connect(ctx, socket, &o, patience)
		var refused *Error
		switch {
		case errors.As(err, &refused) && refused.Code == ErrStarting:
			starting = err
		case err != nil && starting != nil && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)): // in the middle of an attempt
			return nil, starting
		default:
			return c, err
		}
		if base.Sleep(ctx, min(max(refused.After, leastPause), mostPause)) != nil {
			return nil, err
		}
	}
}

// A daemon that is starting is asked again after the time that it says, within these.
const (
	leastPause = 10 * time.Millisecond
	mostPause  = time.Second
)

// connect is one attempt of Dial. Where this process lacks address space or descriptors for
// the daemon's memory, payloads cross the socket.
func connect(ctx context.Context, socket string, o *Options, patience patience) (*Client, error) {
	dial := o.Dialer
	if dial == nil {
		dial = func(ctx context.Context, socket string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	nc, err := dial(ctx, socket)
	if err != nil {
		return nil, fmt.Errorf("kvstored: is the daemon running? %w", err)
	}
	c, err := handshake(ctx, nc, o, patience)
	if err == nil {
		return c, nil
	}
	nc.Close()
	if errors.Is(err, errUnmapped) {
		inline := *o
		inline.Inline = true
		if c, again := connect(ctx, socket, &inline, patience); again == nil {
			return c, nil
		}
	}
	return nil, fmt.Errorf("kvstored: %s: %w", socket, err)
}

// handshake makes nc a Client. nc is the caller's to close beside an error.
func handshake(ctx context.Context, nc net.Conn, o *Options, p patience) (*Client, error) {
	conn, err := wire.NewConn(nc)
	if err != nil {
		return nil, err
	}
	stop := interrupt(ctx, nc.SetDeadline)
	hello, files, err := exchangeHello(conn, o)
	stop()
	if err != nil {
		socket.CloseFiles(files)
		if ctx.Err() != nil {
			return nil, ended(ctx)
		}
		return nil, err
	}
	c := &Client{hello: *hello, link: newLink(conn, hello.MaxRequest, p)}
	c.link.push = c.push
	c.mu.jobs = make(map[uint64]*Job)
	conn.SetMaxBody(hello.MaxReply)
	if hello.HasSpace {
		c.space = &Space{hello.Space}
	}
	if err := c.maps.open(hello, files); err != nil {
		c.maps.close()
		return nil, err
	}
	return c, nil
}

func exchangeHello(conn *wire.Conn, o *Options) (*wire.HelloReply, []*os.File, error) {
	req := wire.HelloRequest{
		MinVersion: wire.Version, MaxVersion: wire.Version, Wants: o.wants(),
		StagingBytes: uint64(max(0, o.StagingBytes)), Name: o.Name, HasSpace: o.Space != nil,
	}
	if o.Space != nil {
		req.Space = *o.Space
		if err := req.Space.Validate(); err != nil {
			return nil, nil, refuse("hello", ErrBadRequest, "%v", err)
		}
	}
	// A daemon that has no room answers at once and hangs up: the answer can be
	// read even where the request could not be written.
	_, failed := conn.Write(wire.AppendRequest(nil, wire.OpHello, 0, &req))
	h, body, files, err := conn.ReadFrameFiles()
	switch {
	case failed != nil && err != nil:
		return nil, files, fmt.Errorf("%w: %w", ErrDisconnected, failed)
	case errors.Is(err, wire.ErrFrameTooLarge) && h.BodyBytes == redisError:
		return nil, files, refuse("hello", ErrBadRequest, "a Redis server listens there; use the daemon's listen.socket")
	case errors.Is(err, wire.ErrMalformed) || errors.Is(err, wire.ErrFrameTooLarge):
		return nil, files, broken("%w", err)
	case err != nil:
		return nil, files, fmt.Errorf("%w: %w", ErrDisconnected, err)
	case h.Kind != wire.KindReply || h.Op != wire.OpHello || h.ID != 0:
		return nil, files, broken("it answered hello with a %s %s", h.Op, h.Kind)
	case h.Code != wire.CodeOK:
		return nil, files, refusedHello(h.Code, body)
	}
	hello := new(wire.HelloReply)
	if err := hello.Decode(body); err != nil {
		return nil, files, broken("%w", err)
	}
	if hello.Version != wire.Version {
		return nil, files, broken("it chose version %d, which was not offered", hello.Version)
	}
	return hello, files, nil
}

// refusedHello is what a daemon says that refuses hello. Of a version that it does not
// speak it does so in the format of all versions.
func refusedHello(code Code, body []byte) error {
	if code == ErrVersion {
		return &Error{Op: "hello", Code: code, Text: wire.VersionRefusal(body)}
	}
	var m wire.ErrorReply
	if err := m.Decode(body); err != nil {
		return broken("%w", err)
	}
	return refusalOf("hello", code, &m)
}

// redisError is how a reply of a Redis server that has not understood hello
// begins, "-ERR", read as the start of a header.
const redisError = '-' | 'E'<<8 | 'R'<<16 | 'R'<<24

func (o *Options) wants() wire.Features {
	f := wire.FeaturePushes
	if !o.Inline {
		f |= wire.FeatureArena | wire.FeatureStaging
	}
	return f
}

// mappings are the daemon's memory as this process sees it. The lock keeps
// them in place during a copy.
type mappings struct {
	mu struct {
		sync.RWMutex
		arena   []byte // nil: not mapped
		staging []byte
	}
}

// errUnmapped says that this process lacks what mapping memory takes.
var errUnmapped = errors.New("the daemon's memory cannot be mapped here")

// open maps what hello granted. It closes files in any case.
func (m *mappings) open(h *wire.HelloReply, files []*os.File) error {
	defer socket.CloseFiles(files)
	want := 0
	for _, f := range []wire.Features{wire.FeatureArena, wire.FeatureStaging} {
		if h.Granted&f != 0 {
			want++
		}
	}
	if int(h.Descriptors) == want && len(files) < want {
		return fmt.Errorf("%w: %d of %d descriptors came; raise the limit of open files", errUnmapped, len(files), want)
	}
	if len(files) != want || int(h.Descriptors) != want {
		return broken("it granted %d descriptors, announced %d and sent %d", want, h.Descriptors, len(files))
	}
	if h.Puts == wire.PutStaged && h.Granted&wire.FeatureStaging == 0 {
		return broken("it chose %s puts without the memory for them", h.Puts)
	}
	var err error
	if h.Granted&wire.FeatureArena != 0 {
		if m.mu.arena, err = mapFile(files[0], h.ArenaBytes, false); err != nil {
			return fmt.Errorf("map the arena: %w", err)
		}
		files = files[1:]
	}
	if h.Granted&wire.FeatureStaging != 0 {
		if m.mu.staging, err = mapFile(files[0], h.StagingBytes, true); err != nil {
			m.close()
			return fmt.Errorf("map the staging window: %w", err)
		}
		_ = unix.Madvise(m.mu.staging, unix.MADV_HUGEPAGE) // nothing depends on them
	}
	return nil
}

// mapFile maps n bytes of f. A file shorter than that would fault on access,
// so it is refused.
func mapFile(f *os.File, n uint64, writable bool) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if n == 0 || n > math.MaxInt || info.Size() < int64(n) {
		return nil, broken("memory of %d bytes was announced, the descriptor has %d", n, info.Size())
	}
	p, err := arena.MapHuge(f, int64(n), writable)
	if err != nil {
		err = fmt.Errorf("%w: %w", errUnmapped, err)
	}
	return p, err
}

// close unmaps. A view handed out before faults from then on.
func (m *mappings) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range []*[]byte{&m.mu.arena, &m.mu.staging} {
		if *p != nil {
			_ = arena.Unmap(*p) // fails only on what Map did not return
			*p = nil
		}
	}
}

// viewed is a chunk in the arena.
func (m *mappings) viewed(r wire.Ref) ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if p := view(m.mu.arena, r.Offset, r.Length); p != nil {
		return p, nil
	}
	return nil, ErrClosed
}

// view is n bytes of b at off, or nil if that is not within b.
func view(b []byte, off uint64, n uint32) []byte {
	if off > uint64(len(b)) || uint64(n) > uint64(len(b))-off {
		return nil
	}
	return b[off : off+uint64(n) : off+uint64(n)]
}
