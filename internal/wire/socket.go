package wire

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/socket"
)

// socketLink is a link over a Unix socket. It polls for a while before a read sleeps.
type socketLink struct {
	raw           syscall.RawConn
	receive, send func(fd uintptr) bool // once each, so that a call allocates nothing
	wait          socket.Poll           // may take two reads
	block         bool                  // of the read under way
	in, out       transfer
}

// transfer is a read or a write under way.
type transfer struct {
	p   []byte
	n   int
	err error
}

func newSocket(raw syscall.RawConn) *socketLink {
	s := &socketLink{raw: raw}
	s.receive, s.send = s.tryRead, s.tryWrite
	return s
}

func (s *socketLink) read(p []byte, block bool) (int, error) {
	s.in, s.block = transfer{p: p}, block
	err := s.raw.Read(s.receive)
	s.in.p = nil
	if err != nil {
		s.wait.Over()
		return 0, err
	}
	return s.in.n, s.in.err
}

// tryRead is what RawConn.Read calls: it reports whether the read is over, and
// is called again after the socket became readable if not.
func (s *socketLink) tryRead(fd uintptr) bool {
	for r := &s.in; ; {
		switch r.n, r.err = syscall.Read(int(fd), r.p); {
		case r.err == syscall.EINTR:
			continue
		case r.err == syscall.EAGAIN:
			if s.wait.Again() {
				continue
			}
			r.n, r.err = 0, ErrWouldBlock
			return !s.block
		case r.err != nil:
			r.n, r.err = 0, os.NewSyscallError("read", r.err)
		case r.n == 0:
			r.err = io.EOF
		}
		s.wait.Over()
		return true
	}
}

// TryWrite implements link.
func (s *socketLink) TryWrite(p []byte) (int, error) {
	s.out = transfer{p: p}
	err := s.raw.Write(s.send)
	s.out.p = nil
	return s.out.n, cmp.Or(err, s.out.err)
}

func (s *socketLink) tryWrite(fd uintptr) bool {
	for w := &s.out; w.n < len(w.p); {
		n, err := syscall.Write(int(fd), w.p[w.n:])
		switch err {
		case nil:
			w.n += n
		case syscall.EINTR:
		case syscall.EAGAIN:
			return true
		default:
			w.err = os.NewSyscallError("write", err)
			return true
		}
	}
	return true
}

// Shut implements link.
func (s *socketLink) Shut() {
	_ = s.raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) }) // they fail where it has ended
}

// MaxFiles is the largest number of descriptors that come with one frame. The
// protocol sends two; the rest is room to grow.
const MaxFiles = 8

// WriteFiles sends p, as far as the socket takes it at once, with descriptors of the
// files beside its first byte.
func (s *socketLink) WriteFiles(p []byte, files []*os.File) (n int, err error) {
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

// ReadFiles reads bytes and the descriptors that came with them. They are
// closed on exec; the caller owns them, also beside an error.
func (s *socketLink) ReadFiles(p []byte) (int, []*os.File, error) {
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
