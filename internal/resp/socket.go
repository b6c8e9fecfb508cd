package resp

import (
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/socket"
)

// clientSocket reads from a connection, polling for a while before it sleeps, if it is one of
// the system's. It belongs to one goroutine.
type clientSocket struct {
	conn net.Conn
	raw  syscall.RawConn // nil: no socket
	wait socket.Poll
	rest func()      // called before it waits, outside of the raw connection: it may wait itself
	due  func() bool // whether rest has anything to do

	p   []byte // what is being read into
	n   int
	err error

	rested bool // try may wait now
}

func newSocket(conn net.Conn, rest func(), due func() bool) *clientSocket {
	s := &clientSocket{conn: conn, rest: rest, due: due}
	if c, ok := conn.(syscall.Conn); ok {
		s.raw, _ = c.SyscallConn()
	}
	return s
}

// read returns bytes or an error.
func (s *clientSocket) read(p []byte) (int, error) {
	if s.raw == nil {
		s.rest()
		n, err := s.conn.Read(p)
		if n > 0 {
			err = nil // it comes again
		} else if err == nil {
			err = io.ErrNoProgress
		}
		return n, err
	}
	s.p, s.rested = p, !s.due()
	err := s.raw.Read(s.try)
	if err == nil && s.err == unix.EAGAIN {
		s.rest()
		s.rested = true
		err = s.raw.Read(s.try)
	}
	s.p = nil
	switch {
	case err != nil:
		s.wait.Over()
		return 0, err
	case s.err != nil:
		return 0, &net.OpError{Op: "read", Net: s.conn.LocalAddr().Network(), Addr: s.conn.RemoteAddr(), Err: s.err}
	case s.n == 0:
		return 0, io.EOF
	}
	return s.n, nil
}

// try is not done when there is nothing to read yet, once the socket has rested.
// It does not wait for anything but the socket: Close waits for its return.
func (s *clientSocket) try(fd uintptr) bool {
	for {
		s.n, s.err = unix.Read(int(fd), s.p)
		switch s.err {
		case unix.EINTR:
		case unix.EAGAIN:
			if !s.rested {
				return true
			}
			if !s.wait.Again() {
				return false
			}
		default:
			s.wait.Over()
			return true
		}
	}
}
