package socket

import (
	"bytes"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// Reader reads from a socket of the system, and polls for a while before it sleeps. It belongs
// to one goroutine at a time.
type Reader struct {
	raw  syscall.RawConn
	try  func(fd uintptr) bool // made once, so that a read allocates nothing
	wait Poll                  // may take two reads

	// Of the read under way:
	block bool
	p     []byte
	n     int
	err   error
}

// NewReader makes the Reader of a socket.
func NewReader(raw syscall.RawConn) *Reader {
	r := &Reader{raw: raw}
	r.try = r.read
	return r
}

// Receive reads into p. Without block it returns syscall.EAGAIN rather than sleep.
func (r *Reader) Receive(p []byte, block bool) (int, error) {
	r.p, r.block = p, block
	err := r.raw.Read(r.try)
	r.p = nil
	if err != nil {
		r.wait.Over()
		return 0, err
	}
	return r.n, r.err
}

// read is what RawConn.Read calls: it reports whether the read is over, and
// is called again after the socket became readable if not.
func (r *Reader) read(fd uintptr) bool {
	for {
		switch r.n, r.err = syscall.Read(int(fd), r.p); {
		case r.err == syscall.EINTR:
			continue
		case r.err == syscall.EAGAIN:
			if r.wait.Again() {
				continue
			}
			r.n = 0
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

// LongestPoll is how long a connection polls.
const LongestPoll = 50 * time.Microsecond

const (
	// busyShare is the % of the time in which threads wait for processors from which the machine
	// is busy. On two processors one client and its daemon alone make 30 to 58.
	busyShare     = 25
	pressureEvery = time.Second // between two looks at the pressure, which the kernel reckons every two
)

// Poll is one connection's waits for its peer. It belongs to one goroutine at a time;
// its zero value is ready.
type Poll struct {
	since time.Time // start of this wait; zero while there is none
	polls bool      // it is one of the pollers
}

// Again is called when there was nothing to read, and reports whether to look once more
// at once rather than sleep. A wait that goes on after a sleep does not poll anew.
func (w *Poll) Again() bool { return w.again(&process, time.Now()) }

// Over ends a wait, if there is one.
func (w *Poll) Over() { w.over(&process) }

func (w *Poll) again(m *machine, now time.Time) bool {
	switch {
	case w.since.IsZero():
		w.since, w.polls = now, m.enter(now)
	case w.polls && now.Sub(w.since) > LongestPoll:
		w.leave(m)
	}
	return w.polls
}

func (w *Poll) over(m *machine) {
	w.leave(m)
	w.since = time.Time{}
}

func (w *Poll) leave(m *machine) {
	if w.polls {
		w.polls = false
		m.pollers.Add(-1)
	}
}

// machine is what all Waits of a process know of the processors that they poll on.
type machine struct {
	most     int32     // pollers at a time
	start    time.Time // longer ago than lookEvery
	pressure func() (share float64, ok bool)

	pollers atomic.Int32
	looked  atomic.Int64 // when the pressure was read, as a [time.Duration] since start
	idle    atomic.Bool
}

var process = machine{most: int32(runtime.GOMAXPROCS(0) / 4), start: time.Now().Add(-time.Hour), pressure: pressure}

// enter takes the place of a poller, if there is one and the machine is idle.
func (m *machine) enter(now time.Time) bool {
	at, looked := now.Sub(m.start), m.looked.Load()
	if at-time.Duration(looked) > pressureEvery && m.looked.CompareAndSwap(looked, int64(at)) {
		share, ok := m.pressure()
		m.idle.Store(ok && share < busyShare)
	}
	if !m.idle.Load() {
		return false
	}
	if m.pollers.Add(1) > m.most {
		m.pollers.Add(-1)
		return false
	}
	return true
}

// pressure is the share of the last ten seconds, in %, in which some thread waited for a
// processor (Linux, Documentation/accounting/psi.rst).
func pressure() (share float64, ok bool) {
	text, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return 0, false
	}
	return waiting(text)
}

func waiting(text []byte) (share float64, ok bool) {
	_, rest, _ := bytes.Cut(text, []byte("some avg10="))
	number, _, ok := bytes.Cut(rest, []byte(" "))
	share, err := strconv.ParseFloat(string(number), 64)
	return share, ok && err == nil
}
