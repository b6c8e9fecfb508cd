package muted

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/unseen"
)

// gate is what goroutines sleep on until a socket is ready for one direction: an
// epoll instance that holds the socket and that the runtime's poller watches.
type gate struct {
	file   *os.File // the instance
	raw    syscall.RawConn
	socket int
	events uint32 // of the socket that open it, once
	step   func(instance uintptr) bool
	hold   func(fd uintptr)

	mu    sync.Mutex
	arm   int  // how the socket is armed: it is added when it is for the first time
	armed bool // an event of the socket is to open it, or has
	try   func(fd uintptr) bool
	err   error
}

// newGate makes a shut gate.
func newGate(socket int, events uint32) (*gate, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll instance: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // or os.File would not have it watched
		_ = unix.Close(fd)
		return nil, fmt.Errorf("epoll instance: %w", err)
	}
	g := &gate{file: os.NewFile(uintptr(fd), "epoll"), socket: socket, events: events | unix.EPOLLONESHOT, arm: unix.EPOLL_CTL_ADD}
	g.step, g.hold = g.attempt, g.held
	g.raw, err = g.file.SyscallConn()
	if err == nil {
		err = g.file.SetDeadline(time.Time{}) // fails where it is not watched
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("epoll instance: %w", err), g.file.Close())
	}
	return g, nil
}

// wait calls try until it is done, and between two calls sleeps until socket is
// ready, which it keeps open meanwhile.
func (g *gate) wait(socket syscall.RawConn, try func(fd uintptr) bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.try, g.err = try, nil
	err := socket.Control(g.hold)
	g.try = nil
	switch {
	case err != nil:
		return net.ErrClosed
	case g.err == nil, errors.Is(g.err, os.ErrDeadlineExceeded), errors.Is(g.err, errArm):
		return g.err
	}
	return net.ErrClosed
}

// held is called while the socket is kept open.
func (g *gate) held(uintptr) {
	if err := g.raw.Read(g.step); err != nil {
		g.err = err
	}
}

// errArm says that the kernel does not watch a socket, for want of memory.
var errArm = errors.New("watch the socket")

// attempt is what the runtime calls when the gate may be open. It arms the socket
// after it was found not ready; a socket that is ready by then opens the gate at
// once.
func (g *gate) attempt(instance uintptr) bool {
	if g.armed {
		g.armed = false
		unseen.TakeEvent(instance) // or the runtime would not be told of the next
	}
	if g.try(uintptr(g.socket)) {
		return true
	}
	if err := unix.EpollCtl(int(instance), g.arm, g.socket, &unix.EpollEvent{Events: g.events}); err != nil {
		g.err = fmt.Errorf("%w: %w", errArm, err)
		return true
	}
	g.arm, g.armed = unix.EPOLL_CTL_MOD, true
	return false
}
