package wire

import (
	"io"
	"os"
	"syscall"

	"github.com/kvstored/kvstored/internal/poll"
)

// socket is a link over a Unix socket.
type socket struct {
	raw syscall.RawConn
	rd  receiver
	wr  sender
}

func newSocket(raw syscall.RawConn) *socket {
	s := &socket{raw: raw}
	s.rd.init()
	s.wr.init()
	return s
}

func (s *socket) read(p []byte, block bool) (int, error) {
	return s.rd.call(s.raw, p, block)
}

func (s *socket) write(p []byte) (int, error) { return s.wr.write(s.raw, p) }

func (s *socket) shut() {
	_ = s.raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) }) // they fail where it has ended
}

// receiver reads from a socket, polling for a while before it sleeps. Its
// function and what that needs are fields, so that a read allocates nothing.
type receiver struct {
	wait poll.Wait // may take two reads
	step func(fd uintptr) bool

	p     []byte
	block bool
	n     int
	err   error
}

func (r *receiver) init() { r.step = r.attempt }

// call reads into p. Without block it returns ErrWouldBlock rather than sleep.
func (r *receiver) call(raw syscall.RawConn, p []byte, block bool) (int, error) {
	r.p, r.block, r.n, r.err = p, block, 0, nil
	err := raw.Read(r.step)
	r.p = nil
	if err != nil {
		r.wait.Over()
		return 0, err
	}
	return r.n, r.err
}

// attempt is what RawConn.Read calls: it reports whether the read is over, and
// is called again after the socket became readable if not.
func (r *receiver) attempt(fd uintptr) bool {
	for {
		switch r.n, r.err = syscall.Read(int(fd), r.p); {
		case r.err == syscall.EINTR:
			continue
		case r.err == syscall.EAGAIN:
			if r.wait.Again() {
				continue
			}
			r.n, r.err = 0, ErrWouldBlock
			return !r.block
		case r.err != nil:
			r.n, r.err = 0, os.NewSyscallError("read", r.err)
		case r.n == 0:
			r.err = io.EOF
		}
		r.wait.Over()
		return true
	}
}

// sender writes to a socket without waiting.
type sender struct {
	step func(fd uintptr) bool
	p    []byte
	n    int
	err  error
}

func (s *sender) init() { s.step = s.attempt }

func (s *sender) write(raw syscall.RawConn, p []byte) (int, error) {
	s.p, s.n, s.err = p, 0, nil
	err := raw.Write(s.step)
	s.p = nil
	if err != nil {
		return s.n, err
	}
	return s.n, s.err
}

func (s *sender) attempt(fd uintptr) bool {
	for s.n < len(s.p) {
		n, err := syscall.Write(int(fd), s.p[s.n:])
		switch err {
		case nil:
			s.n += n
		case syscall.EINTR:
		case syscall.EAGAIN:
			return true
		default:
			s.err = os.NewSyscallError("write", err)
			return true
		}
	}
	return true
}
