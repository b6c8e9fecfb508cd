package lm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/blob"
	"github.com/kvstored/kvstored/internal/ledger"
)

// Options of a Server.
type Options struct {
	Store *blob.Store
	// NewOwner and CloseOwner register who answers for what a connection holds.
	NewOwner   func() ledger.Owner
	CloseOwner func(ledger.Owner)

	Connections  int           // there may be at a time; 0 = 1024
	StallTimeout time.Duration // without progress in the middle of a frame or a reply; 0 = 30 s
	Log          zerolog.Logger
}

const (
	// acceptPause is how long accepting rests when the process has no descriptor
	// or memory left for one more connection.
	acceptPause = 50 * time.Millisecond
	// closeAfter is how long a stopping server waits for clients that do not
	// read their last reply.
	closeAfter = 2 * time.Second
)

// Server serves connections. It is safe for concurrent use.
type Server struct {
	o     Options
	live  atomic.Int64
	count counters
}

type counters struct {
	connections, refused, requests, malformed, hits, misses, stored, dropped, read, written atomic.Uint64
}

// New makes a server; Serve starts it.
func New(o Options) *Server {
	o.Connections = cmp.Or(o.Connections, 1024)
	o.StallTimeout = cmp.Or(o.StallTimeout, 30*time.Second)
	return &Server{o: o}
}

// Serve accepts connections of l until ctx ends, then lets each finish the
// request it is at and closes it. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	var sessions sync.WaitGroup
	err := s.accept(ctx, l, func(conn net.Conn) {
		sessions.Go(func() { s.serveConn(ctx, conn) })
	})
	cancel()
	sessions.Wait()
	if stop() {
		_ = l.Close() // fails only if it was closed before
	}
	return err
}

func (s *Server) accept(ctx context.Context, l net.Listener, serve func(net.Conn)) error {
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			serve(conn)
		case ctx.Err() != nil, errors.Is(err, net.ErrClosed):
			return nil
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.ENOMEM):
			s.o.Log.Warn().Err(err).Msg("an lm:// client waits: no room for its connection; raise the limit on open files")
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
		default:
			return fmt.Errorf("lm: accept: %w", err)
		}
	}
}

func (s *Server) serveConn(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer s.live.Add(-1)
	if s.live.Add(1) > int64(s.o.Connections) {
		s.count.refused.Add(1)
		return
	}
	s.count.connections.Add(1)
	c := &session{server: s, conn: conn, ctx: ctx, owner: s.o.NewOwner()}
	defer s.o.CloseOwner(c.owner)
	c.serve()
}

// Stats is a snapshot of a server's counters since the start.
type Stats struct {
	Connections      int64  `json:"connections"`
	ConnectionsTotal uint64 `json:"connections_total"`
	Refused          uint64 `json:"connections_refused"`
	Requests         uint64 `json:"requests"`
	Malformed        uint64 `json:"malformed"`
	Hits             uint64 `json:"hits"`
	Misses           uint64 `json:"misses"`
	Stored           uint64 `json:"stored"`
	Dropped          uint64 `json:"dropped"` // puts there was no room for
	BytesRead        uint64 `json:"bytes_read"`
	BytesWritten     uint64 `json:"bytes_written"`
}

// Stats returns a snapshot.
func (s *Server) Stats() Stats {
	c := &s.count
	return Stats{
		Connections: s.live.Load(), ConnectionsTotal: c.connections.Load(), Refused: c.refused.Load(),
		Requests: c.requests.Load(), Malformed: c.malformed.Load(), Hits: c.hits.Load(), Misses: c.misses.Load(),
		Stored: c.stored.Load(), Dropped: c.dropped.Load(), BytesRead: c.read.Load(), BytesWritten: c.written.Load(),
	}
}
