package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/socket"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

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
		select {
		case <-time.After(min(max(refused.After, leastPause), mostPause)):
		case <-ctx.Done():
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
