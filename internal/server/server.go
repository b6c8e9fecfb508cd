package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

// Options of a Server.
type Options struct {
	Stack      *tier.Stack
	Arena      *arena.Arena
	Quarantine *arena.Quarantine // needed with Direct
	Direct     bool              // clients fill the arena themselves

	AllowUIDs []uint32 // who may connect; none = whoever the socket's mode admits
	AdminUIDs []uint32 // who may administer besides root and this process's user

	Spin        time.Duration // how long a connection polls before it sleeps
	LeaseMaxAge time.Duration
	PinMaxAge   time.Duration
	Prefetch    Prefetch

	ChunkTokens int    // of spaces that do not say
	Method      string // hash method of spaces that do not say
	SaveUnfull  bool   // a last, shorter chunk counts even if the request does not ask

	Version string
	Epoch   uint64 // random for each start of the daemon
	// Stats returns the daemon's numbers as a JSON object.
	Stats func() ([]byte, error)
	// Observe is told how long a request took until its answer was handed to
	// the socket; nil for nobody.
	Observe func(op wire.Op, took time.Duration)
	Log     zerolog.Logger
}

// Prefetch is what a prefetch does where its request does not say.
type Prefetch struct {
	Policy        wire.WaitPolicy
	Deadline      time.Duration
	Per1024Tokens time.Duration // added for each 1,024 tokens that must come up
	WindowBytes   int64         // in flight for one job
}

// Server serves connections. It is safe for concurrent use.
type Server struct {
	o     Options
	ids   atomic.Uint64 // of jobs and fills
	count counters
	mu    struct {
		sync.Mutex
		sessions map[*session]struct{}
	}
}

// New makes a server; Serve starts it.
func New(o Options) *Server {
	s := &Server{o: o}
	s.mu.sessions = make(map[*session]struct{})
	return s
}

// Serve accepts connections until ctx ends, then closes them and returns when
// everything they held has been given back. It closes l.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	var sessions sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		uc, err := l.AcceptUnix()
		if err != nil {
			sessions.Wait()
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("server: accept: %w", err)
		}
		sessions.Go(func() { s.serveConn(ctx, uc) })
	}
}

func (s *Server) serveConn(ctx context.Context, uc *net.UnixConn) {
	defer uc.Close()
	c, err := newSession(s, uc)
	if err != nil {
		s.o.Log.Debug().Err(err).Msg("connection refused")
		return
	}
	s.mu.Lock()
	s.mu.sessions[c] = struct{}{}
	s.mu.Unlock()
	s.count.connections.Add(1)
	c.serve(ctx)
	s.mu.Lock()
	delete(s.mu.sessions, c)
	s.mu.Unlock()
}

// connections is how many there are now.
func (s *Server) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.sessions)
}
