package keep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/socket"
)

const (
	// most is how many connections are served at a time.
	most = 8
	// leaveTimeout is the default of Server.Patience: the daemon before may be on its way
	// out.
	leaveTimeout = 2 * time.Second
)

// Server keeps the descriptors of one daemon. Its zero value has none.
type Server struct {
	Log zerolog.Logger
	// Patience is how long a daemon that starts waits for the end of the one before; 0 is
	// 2 s.
	Patience time.Duration

	mu struct {
		sync.Mutex
		files Files // none, or those of a daemon
		owner *Conn // of the daemon that has them, while it lasts
		left  base.Signal
	}
}

// Serve answers daemons until ctx ends, and then lets go of everything. The listener, of a
// Unix socket, is closed by it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer s.drop()
	places := make(chan struct{}, most)
	return socket.Serve(ctx, l, s.Log, func(net.Conn) socket.Handler {
		select {
		case places <- struct{}{}:
		default:
			s.Log.Warn().Int("connections", most).Msg("a connection more than are served; it is closed")
			return nil
		}
		return func(_ context.Context, c net.Conn) { // what a daemon sent before its end counts
			defer func() { <-places }()
			s.meet(ctx, c.(*net.UnixConn))
		}
	})
}

// drop closes the files kept.
func (s *Server) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.files) > 0 {
		s.Log.Warn().Msg("the keeper ends: DRAM goes with its daemon, at once where none runs")
	}
	s.mu.files.Close()
	s.mu.files = nil
}

// meet serves one connection until it ends.
func (s *Server) meet(ctx context.Context, uc *net.UnixConn) {
	conn, err := NewConn(uc)
	if err != nil {
		s.Log.Warn().Err(err).Msg("a process was refused")
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = uc.CloseRead() })
	defer stop()
	for err == nil {
		err = s.answer(conn)
	}
	s.leave(conn)
	if !errors.Is(err, ErrEnded) && ctx.Err() == nil {
		s.Log.Warn().Err(err).Msg("a connection ended")
		conn.Fail(human.VersionText(), err)
	}
}

// answer serves one message. An error ends the connection.
func (s *Server) answer(conn *Conn) error {
	m, files, err := conn.Next(0)
	if err != nil {
		return err
	}
	switch {
	case m.Step == Take && len(files) == 0:
		return s.give(conn, m.Program)
	case m.Step == Keep:
		f, err := named(m.Names, files)
		if err != nil {
			return err
		}
		return s.keep(conn, &m, f)
	}
	socket.CloseFiles(files)
	return fmt.Errorf("%q with %d descriptors: want %s with none, or %s", m.Step, len(files), Take, Keep)
}

// give answers Take. The descriptors sent are copies: a peer that does not read keeps
// no other call waiting, and Keep may close the others meanwhile.
func (s *Server) give(conn *Conn, program string) error {
	answer := Message{Step: Taken}
	files, err := s.lend(conn, program)
	if errors.Is(err, ErrBusy) {
		answer.Busy, err = true, nil
	}
	if err != nil {
		return err
	}
	defer files.Close()
	var list []*os.File
	answer.Names, list = files.parts()
	return conn.Send(answer, timeout, list...)
}

// lend has conn's daemon have the files, and returns copies of them. ErrBusy says that
// another one still has them after the patience.
func (s *Server) lend(conn *Conn, program string) (files Files, err error) {
	late := time.After(cmp.Or(s.Patience, leaveTimeout))
	s.mu.Lock()
	defer s.mu.Unlock()
	for waits := true; waits && s.busy(conn); {
		left := s.mu.left.Next()
		s.mu.Unlock()
		select {
		case <-left:
		case <-late:
			waits = false
		}
		s.mu.Lock()
	}
	if s.busy(conn) {
		return nil, ErrBusy
	}
	files = make(Files)
	for name, f := range s.mu.files {
		if files[name], err = duplicate(f); err != nil {
			delete(files, name)
			files.Close()
			return nil, err
		}
	}
	s.mu.owner = conn
	s.Log.Info().Str("program", program).Int("descriptors", len(files)).Msg("a daemon starts")
	return files, nil
}

// busy reports whether another daemon than that of conn has the files. The mutex is held.
func (s *Server) busy(conn *Conn) bool { return s.mu.owner != nil && s.mu.owner != conn }

// keep answers Keep. The files are kept, or closed.
func (s *Server) keep(conn *Conn, m *Message, files Files) error {
	answer := Message{Step: Taken, Busy: !s.exchange(conn, m, &files)}
	files.Close()
	return conn.Send(answer, timeout)
}

// exchange has files kept in place of those that are, which it leaves in files. It is
// false where another daemon has these and still runs.
func (s *Server) exchange(conn *Conn, m *Message, files *Files) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy(conn) && !m.Over {
		return false
	}
	s.Log.Info().Str("program", m.Program).Int("descriptors", len(*files)).Msg("kept for a daemon")
	s.mu.files, *files, s.mu.owner = *files, s.mu.files, conn
	return true
}

// leave notes that a daemon has ended.
func (s *Server) leave(conn *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.owner == conn {
		s.mu.owner = nil
		s.mu.left.Wake()
		s.Log.Info().Msg("the daemon has ended; what it gave is kept for the next one")
	}
}
