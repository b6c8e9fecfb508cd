package wire

import (
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/spin"
	"github.com/kvstored/kvstored/internal/unseen"
)

// receiver reads from a socket, polling for a while before it sleeps. Its
// function and what that needs are fields, so that a read allocates nothing.
type receiver struct {
	wait spin.Wait // may take two reads
	step func(fd uintptr) bool

	p     []byte
	how   task
	block bool
	n     int
	err   error
}

// task is what a call of a receiver does.
type task int

const (
	reads   task = iota
	hurries      // reads, and neither polls nor sleeps
	looks        // whether there is something to read, and leaves it there
)

func (r *receiver) init(longest time.Duration) {
	r.wait.Start(longest, true)
	r.step = r.attempt
}

// read reads at least one byte into p. Without block it returns ErrWouldBlock
// rather than sleep.
func (r *receiver) read(raw syscall.RawConn, p []byte, block bool) (int, error) {
	return r.call(raw, p, reads, block)
}

// readNow is read that returns ErrWouldBlock at once where nothing is there.
func (r *receiver) readNow(raw syscall.RawConn, p []byte) (int, error) {
	return r.call(raw, p, hurries, false)
}

// await is read that leaves everything to be read, the end of the stream too.
func (r *receiver) await(raw syscall.RawConn, block bool) error {
	_, err := r.call(raw, nil, looks, block)
	return err
}

func (r *receiver) call(raw syscall.RawConn, p []byte, how task, block bool) (int, error) {
	r.p, r.how, r.block, r.n, r.err = p, how, block, 0, nil
	err := raw.Read(r.step)
	r.p = nil
	if err != nil {
		r.wait.Forget()
		return 0, err
	}
	return r.n, r.err
}

// attempt is what RawConn.Read calls: it reports whether the read is over, and
// is called again after the socket became readable if not.
func (r *receiver) attempt(fd uintptr) bool {
	for {
		if r.how == looks {
			r.err = look(int(fd))
		} else {
			r.n, r.err = unseen.Read(fd, r.p)
		}
		switch {
		case r.err == syscall.EINTR:
			continue
		case r.err == syscall.EAGAIN:
			if r.how != hurries && r.wait.Again() {
				continue
			}
			r.n, r.err = 0, ErrWouldBlock
			return !r.block
		case r.err != nil:
			r.n, r.err = 0, os.NewSyscallError("read", r.err)
		case r.n == 0 && r.how != looks:
			r.err = io.EOF
		}
		r.wait.Over()
		return true
	}
}

// look is EAGAIN while nothing is there to be read.
func look(fd int) error {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	if err == nil && n == 0 {
		err = syscall.EAGAIN
	}
	return err
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
		n, err := unseen.Write(fd, s.p[s.n:])
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
