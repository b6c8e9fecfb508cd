package wire

import (
	"io"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// receiver reads from a socket, polling for a while before it sleeps. Its
// function and what that needs are fields, so that a read allocates nothing.
//
// How long it polls follows the waits there were, as KVM's halt polling does
// (Linux, Documentation/virt/kvm/halt-polling): a wait that a longer poll would
// have caught doubles the window up to spin, one that no poll would have caught
// halves it, down to none.
type receiver struct {
	spin   time.Duration // the longest window
	window time.Duration // for how long this wait polls
	step   func(fd uintptr) bool

	p     []byte
	block bool
	n     int
	err   error
	since time.Time // start of this wait, which may take two reads; zero while there is none
	slot  bool      // it has one of the places in pollers
}

// leastWindow: the shortest window is this part of the longest.
const leastWindow = 16

// pollers counts who polls now, in all connections of the process: at most half
// of the processors it had at its start, so that others find one.
var (
	pollers    atomic.Int32
	maxPollers = int32(runtime.GOMAXPROCS(0) / 2)
)

func (r *receiver) init(spin time.Duration) {
	r.spin, r.window = spin, spin/leastWindow
	r.step = r.attempt
}

// read reads at least one byte into p. Without block it returns ErrWouldBlock
// rather than sleep.
func (r *receiver) read(raw syscall.RawConn, p []byte, block bool) (int, error) {
	r.p, r.block, r.n, r.err = p, block, 0, nil
	err := raw.Read(r.step)
	r.p = nil
	if err != nil {
		r.since = time.Time{}
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
			if r.poll() {
				continue
			}
			r.n, r.err = 0, ErrWouldBlock
			return !r.block
		case r.err != nil:
			r.n, r.err = 0, os.NewSyscallError("read", r.err)
		case r.n == 0:
			r.err = io.EOF
		}
		r.waited()
		return true
	}
}

// poll reports whether to look again at once rather than sleep.
func (r *receiver) poll() bool {
	if r.spin <= 0 {
		return false
	}
	if r.since.IsZero() {
		r.since = time.Now()
		r.slot = r.window > 0 && takeSlot()
		return r.slot
	}
	if r.slot && time.Since(r.since) > r.window {
		r.leaveSlot()
	}
	return r.slot
}

// waited draws the conclusions from a wait that is over.
func (r *receiver) waited() {
	if r.since.IsZero() {
		return
	}
	r.leaveSlot()
	r.window = nextWindow(r.window, r.spin, time.Since(r.since))
	r.since = time.Time{}
}

// nextWindow is for how long to poll after a wait of d under window.
func nextWindow(window, longest, d time.Duration) time.Duration {
	least := longest / leastWindow
	switch {
	case d <= window:
		return window
	case d <= longest:
		return min(longest, 2*max(window, least))
	case window/2 >= least:
		return window / 2
	}
	return 0
}

func takeSlot() bool {
	if pollers.Add(1) <= maxPollers {
		return true
	}
	pollers.Add(-1)
	return false
}

func (r *receiver) leaveSlot() {
	if r.slot {
		r.slot = false
		pollers.Add(-1)
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
