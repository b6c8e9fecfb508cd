package wire

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/socket"
)

// socketLink is a link over a Unix socket.
type socketLink struct {
	raw syscall.RawConn
	rd  receiver
	wr  sender
}

func newSocket(raw syscall.RawConn) *socketLink {
	s := &socketLink{raw: raw}
	s.rd.init()
	s.wr.init()
	return s
}

func (s *socketLink) read(p []byte, block bool) (int, error) {
	return s.rd.call(s.raw, p, block)
}

func (s *socketLink) write(p []byte) (int, error) { return s.wr.write(s.raw, p) }

func (s *socketLink) shut() {
	_ = s.raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) }) // they fail where it has ended
}

// receiver reads from a socket, polling for a while before it sleeps. Its
// function and what that needs are fields, so that a read allocates nothing.
type receiver struct {
	wait socket.Poll // may take two reads
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

// MaxFiles is the largest number of descriptors that come with one frame. The
// protocol sends two; the rest is room to grow.
const MaxFiles = 8

// writeFiles sends p, as far as the socket takes it at once, with descriptors of the
// files beside its first byte.
func (s *socketLink) writeFiles(p []byte, files []*os.File) (n int, err error) {
	rights, err := socket.Rights(files)
	if err != nil {
		return 0, err
	}
	var failed error
	err = s.raw.Write(func(fd uintptr) bool {
		for failed = syscall.EINTR; failed == syscall.EINTR; {
			n, failed = unix.SendmsgN(int(fd), p, rights, nil, 0)
		}
		return failed != syscall.EAGAIN
	})
	runtime.KeepAlive(files)
	if err == nil && failed != nil {
		err = os.NewSyscallError("sendmsg", failed)
	}
	return n, err
}

// readFiles reads bytes and the descriptors that came with them. They are
// closed on exec; the caller owns them, also beside an error.
func (s *socketLink) readFiles(p []byte) (int, []*os.File, error) {
	oob := make([]byte, syscall.CmsgSpace(4*MaxFiles))
	var n, oobn, flags int
	var failed error
	err := s.raw.Read(func(fd uintptr) bool {
		for failed = syscall.EINTR; failed == syscall.EINTR; {
			n, oobn, flags, _, failed = unix.Recvmsg(int(fd), p, oob, unix.MSG_CMSG_CLOEXEC)
		}
		return failed != syscall.EAGAIN
	})
	if err == nil && failed != nil {
		err = os.NewSyscallError("recvmsg", failed)
	}
	if err != nil {
		return 0, nil, err
	}
	files, err := socket.Files(oob[:oobn], "kvstored")
	switch {
	case err != nil:
		err = fmt.Errorf("%w: control message: %w", ErrMalformed, err)
	case flags&syscall.MSG_CTRUNC != 0:
		err = fmt.Errorf("%w: more than %d descriptors, or no room for them in this process: raise its limit on open files", ErrMalformed, MaxFiles)
	case n == 0:
		err = io.EOF
	}
	return n, files, err
}
