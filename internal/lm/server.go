package lm

import (
	"cmp"
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/accept"
	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/blob"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/internal/ledger"
)

// Options of a Server.
type Options struct {
	Store *blob.Store
	// NewOwner and CloseOwner register who answers for what a connection holds.
	NewOwner   func() ledger.Owner
	CloseOwner func(ledger.Owner)

	// Admit tells who has connected, and is an error where that client may not;
	// nil: every client may do everything.
	Admit func(net.Conn) (access.Peer, error)
	// Enter counts a client that is admitted, until leave is called, and returns the turns
	// in which its requests compute; an error says that it has too many connections. Nil
	// does not count.
	Enter        func(net.Conn) (turn *fair.Turn, leave func(), err error)
	Connections  int            // there may be at a time; 0 = 1024
	StallTimeout time.Duration  // without progress in the middle of a frame or a reply; 0 = 30 s
	Budget       *budget.Budget // what the connections cost outside the arena; nil = no bound
	Log          zerolog.Logger
}

const (
	// closeAfter is how long a stopping server waits for clients that do not
	// read their last reply.
	closeAfter = 2 * time.Second
	// quietBytes is what a connection costs that holds nothing: its goroutine.
	quietBytes = 16 << 10
	// troubles are how many lines a minute the log gets of payloads that are not
	// stored, of all clients together; all are counted.
	troubles = 10
)

// Server serves connections. It is safe for concurrent use.
type Server struct {
	o       Options
	live    atomic.Int64
	conns   accept.Live
	count   counters
	trouble zerolog.Logger // of what may come in floods
}

type counters struct {
	connections, refused, requests, malformed, hits, misses, stored, read, written atomic.Uint64
	dropped                                                                        blob.Drops
}

// New makes a server; Serve starts it.
func New(o Options) *Server {
	o.Connections = cmp.Or(o.Connections, 1024)
	o.StallTimeout = cmp.Or(o.StallTimeout, 30*time.Second)
	return &Server{o: o, trouble: o.Log.Sample(&zerolog.BurstSampler{Burst: troubles, Period: time.Minute})}
}

// Recheck closes the connections that Options.Admit refuses by now.
func (s *Server) Recheck() {
	if s.o.Admit != nil {
		s.conns.Recheck(func(conn net.Conn) error {
			_, err := s.o.Admit(conn)
			return err
		})
	}
}

// Serve accepts connections of l until ctx ends, then lets each finish the
// request it is at and closes it. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	return accept.ServeSome(ctx, l, s.o.Log, s.admit)
}

// admit says what becomes of a connection. The protocol has no words for a refusal.
func (s *Server) admit(conn net.Conn) accept.Handler {
	if s.live.Add(1) > int64(s.o.Connections) {
		return s.refuse()
	}
	if s.o.Admit != nil {
		if _, err := s.o.Admit(conn); err != nil {
			return s.refuse()
		}
	}
	if s.o.Enter == nil {
		return func(ctx context.Context, conn net.Conn) { s.serveConn(ctx, conn, nil) }
	}
	turn, leave, err := s.o.Enter(conn)
	if err != nil {
		return s.refuse()
	}
	return func(ctx context.Context, conn net.Conn) {
		defer leave()
		s.serveConn(ctx, conn, turn)
	}
}

// refuse has a connection closed.
func (s *Server) refuse() accept.Handler {
	s.live.Add(-1)
	s.count.refused.Add(1)
	return nil
}

func (s *Server) serveConn(ctx context.Context, conn net.Conn, turn *fair.Turn) {
	defer s.live.Add(-1)
	defer s.conns.Add(conn)()
	var peer access.Peer
	if s.o.Admit != nil { // once more: who may connect can have changed since
		var err error
		if peer, err = s.o.Admit(conn); err != nil {
			s.count.refused.Add(1)
			return
		}
	}
	s.count.connections.Add(1)
	account, err := s.o.Budget.Open(conn, budget.LM, quietBytes)
	if err != nil {
		s.count.refused.Add(1)
		return
	}
	defer account.Close()
	c := &session{server: s, conn: conn, peer: peer, account: account, turn: turn, ctx: fair.With(ctx, turn), owner: s.o.NewOwner()}
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
	// Dropped counts puts that were not kept, by reason.
	Dropped      map[string]uint64 `json:"dropped"`
	Owed         int64             `json:"owed"` // old payloads still to be deleted below
	BytesRead    uint64            `json:"bytes_read"`
	BytesWritten uint64            `json:"bytes_written"`
}

// Stats returns a snapshot.
func (s *Server) Stats() Stats {
	c := &s.count
	return Stats{
		Connections: s.live.Load(), ConnectionsTotal: c.connections.Load(), Refused: c.refused.Load(),
		Requests: c.requests.Load(), Malformed: c.malformed.Load(), Hits: c.hits.Load(), Misses: c.misses.Load(),
		Stored: c.stored.Load(), Dropped: c.dropped.Counts(), Owed: s.o.Store.Owed(), BytesRead: c.read.Load(), BytesWritten: c.written.Load(),
	}
}
