package socket

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/base"
)

// ErrDeparted is the cause with which the context of a connection ends when the
// client is gone. It is a context.Canceled.
var ErrDeparted = fmt.Errorf("the client has closed the connection: %w", context.Canceled)

const (
	// peekEvery is how often the connections are looked at. A look is one
	// system call of half a microsecond for each.
	peekEvery = 250 * time.Millisecond
	// halfFor is how long a TCP client that has closed its sending side is
	// served: the end of the program and a client that only waits for its last
	// replies look alike there.
	halfFor = 10 * time.Second
)

// departures ends the contexts of connections whose clients are gone, also
// while a request is being worked on and no goroutine reads. The mutex is a
// leaf and is not held over a system call.
type departures struct {
	halfFor time.Duration
	mu      struct {
		sync.Mutex
		here map[*presence]struct{}
		came base.Signal // a connection
	}
}

// presence is one connection that is looked at.
type presence struct {
	raw   syscall.RawConn // nil: within the process, and hung tells
	hung  func() bool
	tcp   bool
	gone  context.CancelCauseFunc
	since time.Time // of a half-closed one; only look uses it
}

func newDepartures() *departures {
	d := &departures{halfFor: halfFor}
	d.mu.here = make(map[*presence]struct{})
	return d
}

// attend looks at conn until leave is called. A connection that is no socket of
// the system, and does not know itself whether its peer is there, is not looked at.
func (d *departures) attend(conn net.Conn, gone context.CancelCauseFunc) (leave func()) {
	p := &presence{gone: gone}
	switch conn := conn.(type) {
	case syscall.Conn:
		raw, err := conn.SyscallConn()
		if err != nil {
			return func() {}
		}
		p.raw = raw
	case interface{ Hung() bool }: // within this process
		p.hung = conn.Hung
	default:
		return func() {}
	}
	_, p.tcp = conn.(*net.TCPConn)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.here[p] = struct{}{}
	d.mu.came.Wake()
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.mu.here, p)
	}
}

// run looks until ctx ends; with no connection there it sleeps.
func (d *departures) run(ctx context.Context) {
	var all []*presence
	for {
		var first <-chan struct{}
		all, first = d.list(all[:0])
		if first != nil && !base.Await(ctx, first) {
			return
		}
		for i, p := range all {
			p.look(d.halfFor)
			if all[i] = nil; i%breathLooks == breathLooks-1 {
				time.Sleep(breath)
			}
		}
		if base.Sleep(ctx, peekEvery) != nil {
			return
		}
	}
}

// list appends the connections to all. Without one it returns a channel that
// is closed with the first.
func (d *departures) list(all []*presence) ([]*presence, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if all = slices.AppendSeq(all, maps.Keys(d.mu.here)); len(all) == 0 {
		return all, d.mu.came.Next()
	}
	return all, nil
}

// look ends the context if the client is gone. A failure means that the
// connection is closed here.
func (p *presence) look(halfFor time.Duration) {
	if p.raw == nil {
		if p.hung() {
			p.gone(ErrDeparted)
		}
		return
	}
	_ = p.raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		if n, err := unix.Poll(fds, 0); n == 0 || err != nil {
			p.since = time.Time{}
			return
		}
		switch {
		case fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0:
			p.gone(ErrDeparted)
		case !p.tcp:
		case p.since.IsZero():
			p.since = time.Now()
		case time.Since(p.since) > halfFor:
			p.gone(ErrDeparted)
		}
	})
}
