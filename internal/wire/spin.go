package wire

import (
	"io"
	"os"
	"runtime"
	"syscall"
	"time"
)

// receiver reads from a socket, polling briefly before it sleeps. Its function
// and what that needs are fields, so that a read allocates nothing.
type receiver struct {
	spin time.Duration
	hot  bool // the last wait was short enough that polling pays
	step func(fd uintptr) bool

	p     []byte
	block bool
	n     int
	err   error
	since time.Time // start of this wait; zero until it is needed
}

func (r *receiver) init(spin time.Duration) {
	if runtime.NumCPU() > 1 {
		r.spin = spin
	}
	r.step = r.attempt
}

// read reads at least one byte into p. Without block it returns ErrWouldBlock
// rather than sleep.
func (r *receiver) read(raw syscall.RawConn, p []byte, block bool) (int, error) {
	r.p, r.block, r.n, r.err, r.since = p, block, 0, nil, time.Time{}
	err := raw.Read(r.step)
	r.p = nil
	if err != nil {
		return 0, err
	}
	return r.n, r.err
}

// attempt is what RawConn.Read calls: it reports whether the read is over, and
// is called again after the socket became readable if not.
func (r *receiver) attempt(fd uintptr) bool {
	for {
		r.n, r.err = syscall.Read(int(fd), r.p)
		switch {
		case r.err == syscall.EINTR:
			continue
		case r.err == syscall.EAGAIN:
			if r.keepSpinning() {
				continue
			}
			r.n, r.err = 0, ErrWouldBlock
			return !r.block
		case r.err != nil:
			r.n, r.err = 0, os.NewSyscallError("read", r.err)
		case r.n == 0:
			r.err = io.EOF
		case !r.since.IsZero():
			r.hot = time.Since(r.since) <= warmSpins*r.spin
		}
		return true
	}
}

func (r *receiver) keepSpinning() bool {
	if r.spin <= 0 {
		return false
	}
	if r.since.IsZero() {
		r.since = time.Now()
	} else if r.hot && time.Since(r.since) > r.spin {
		r.hot = false
	}
	return r.hot
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
