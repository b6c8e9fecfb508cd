package resp

import (
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// socket reads from a connection: into two places with one system call, if it
// is one of the system's. It belongs to one goroutine.
type socket struct {
	conn net.Conn
	raw  syscall.RawConn // nil: no socket

	vec [][]byte // what is being read into
	n   int
	err error
}

func newSocket(conn net.Conn) *socket {
	s := &socket{conn: conn}
	if c, ok := conn.(syscall.Conn); ok {
		s.raw, _ = c.SyscallConn()
	}
	return s
}

// read reads into p, and what comes behind p into rest. It returns bytes or an error.
func (s *socket) read(p, rest []byte) (int, error) {
	if s.raw == nil || len(rest) == 0 {
		n, err := s.conn.Read(p)
		if n > 0 {
			err = nil // it comes again
		} else if err == nil {
			err = io.ErrNoProgress
		}
		return n, err
	}
	s.vec = append(s.vec[:0], p, rest)
	err := s.raw.Read(s.try)
	clear(s.vec)
	switch {
	case err != nil:
		return 0, err
	case s.err != nil:
		return 0, &net.OpError{Op: "readv", Net: s.conn.LocalAddr().Network(), Addr: s.conn.RemoteAddr(), Err: s.err}
	case s.n == 0:
		return 0, io.EOF
	}
	return s.n, nil
}

// try is not done when there is nothing to read yet.
func (s *socket) try(fd uintptr) bool {
	for {
		s.n, s.err = unix.Readv(int(fd), s.vec)
		if !errors.Is(s.err, unix.EINTR) {
			return !errors.Is(s.err, unix.EAGAIN)
		}
	}
}
