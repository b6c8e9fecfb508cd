package muted

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// conn is a muted connection. It is safe for concurrent use as net.Conn is.
type conn struct {
	local, remote net.Addr
	file          *os.File        // the socket, which the runtime does not watch
	raw           syscall.RawConn // of file; the descriptor is used through raw only
	in            *gate
	once          attempt

	mu      sync.Mutex
	closed  bool
	writeBy time.Time
	out     *gate // made when a write has to wait for the first time
}

// attempt is one call of a function with the descriptor. Its function for that is
// a field, so that a write allocates nothing.
type attempt struct {
	step func(fd uintptr)

	mu   sync.Mutex
	try  func(fd uintptr) bool
	done bool
}

// New returns a connection in the place of c that the runtime's poller does not
// hear of, if c is a Unix socket; c must not be used any more then. Otherwise, and
// where that cannot be had, it returns c.
func New(c net.Conn) net.Conn {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return c
	}
	fd := -1
	if raw, err := uc.SyscallConn(); err == nil {
		_ = raw.Control(func(own uintptr) { // a closed one is found below
			if n, err := unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0); err == nil {
				fd = n
			}
		})
	}
	if fd < 0 {
		return c
	}
	in, err := newGate(fd, unix.EPOLLIN|unix.EPOLLRDHUP)
	if err != nil {
		_ = unix.Close(fd)
		return c
	}
	m := &conn{local: uc.LocalAddr(), remote: uc.RemoteAddr(), in: in}
	m.once.step = func(fd uintptr) { m.once.done = m.once.try(fd) }
	_ = uc.Close() // which ends the runtime's watch over the socket, and leaves its other descriptor
	// os.File has a descriptor watched that does not block.
	_ = unix.SetNonblock(fd, false) // these cannot fail on an open descriptor
	m.file = os.NewFile(uintptr(fd), "socket")
	_ = unix.SetNonblock(fd, true)
	m.raw, _ = m.file.SyscallConn() // fails on a closed file only
	return m
}

// SyscallConn is the socket as one of net.Conn gives it.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return (*rawConn)(c), nil }

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	var failed error
	err = c.in.wait(c.raw, func(fd uintptr) bool {
		n, failed = ignoringEINTR(func() (int, error) { return unix.Read(int(fd), p) })
		return failed != unix.EAGAIN
	})
	switch {
	case err != nil:
		return 0, c.fault("read", err)
	case failed != nil:
		return 0, c.fault("read", os.NewSyscallError("read", failed))
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (c *conn) Write(p []byte) (n int, err error) {
	var failed error
	err = (*rawConn)(c).Write(func(fd uintptr) bool {
		for n < len(p) && failed == nil {
			var m int
			m, failed = ignoringEINTR(func() (int, error) { return unix.Write(int(fd), p[n:]) })
			n += max(0, m)
		}
		if failed == unix.EAGAIN {
			failed = nil
			return false
		}
		return true
	})
	switch {
	case err != nil:
		return n, c.fault("write", err)
	case failed != nil:
		return n, c.fault("write", os.NewSyscallError("write", failed))
	}
	return n, nil
}

func (c *conn) fault(op string, err error) error {
	return &net.OpError{Op: op, Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: err}
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}

// Close ends reads and writes under way; the descriptor is closed when they have
// returned.
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.fault("close", net.ErrClosed)
	}
	c.closed = true
	_ = c.in.file.Close() // an epoll instance has nothing that could be lost
	if c.out != nil {
		_ = c.out.file.Close()
	}
	return c.file.Close()
}

// CloseRead ends the receiving side.
func (c *conn) CloseRead() error {
	return c.option(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RD) })
}

// CloseWrite ends the sending side.
func (c *conn) CloseWrite() error {
	return c.option(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) })
}

func (c *conn) option(set func(fd int) error) error {
	var err error
	if c.raw.Control(func(fd uintptr) { err = set(int(fd)) }) != nil {
		err = net.ErrClosed
	}
	if err != nil {
		return c.fault("set", err)
	}
	return nil
}

// SetWriteBuffer sets how much the socket takes before a write waits, in bytes.
func (c *conn) SetWriteBuffer(n int) error {
	return c.option(func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, n) })
}

func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	if c.in.file.SetReadDeadline(t) != nil {
		return c.fault("set", net.ErrClosed)
	}
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeBy = t
	if c.closed || c.out != nil && c.out.file.SetReadDeadline(t) != nil {
		return c.fault("set", net.ErrClosed)
	}
	return nil
}

// rawConn is the connection as a syscall.RawConn.
type rawConn conn

// Control calls f with the descriptor, which stays open until it returns.
func (r *rawConn) Control(f func(fd uintptr)) error {
	if r.raw.Control(f) != nil {
		return net.ErrClosed
	}
	return nil
}

// Read calls f until it reports that it is done, and sleeps between two calls until
// there is something to read.
func (r *rawConn) Read(f func(fd uintptr) bool) error { return r.in.wait(r.raw, f) }

// Write is Read for room to write.
func (r *rawConn) Write(f func(fd uintptr) bool) error {
	c := (*conn)(r)
	if err := c.late(); err != nil {
		return err
	}
	done, err := c.once.call(c.raw, f)
	if done || err != nil {
		return err
	}
	out, err := c.outGate()
	if err != nil {
		return err
	}
	return out.wait(c.raw, f)
}

// call calls f once, which says whether it is done.
func (a *attempt) call(socket syscall.RawConn, f func(fd uintptr) bool) (done bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.try, a.done = f, false
	err = socket.Control(a.step)
	a.try = nil
	if err != nil {
		return false, net.ErrClosed
	}
	return a.done, nil
}

// late is an error when no more is to be written.
func (c *conn) late() error {
	c.mu.Lock()
	by := c.writeBy
	c.mu.Unlock()
	if by.IsZero() || time.Now().Before(by) {
		return nil
	}
	return os.ErrDeadlineExceeded
}

// outGate makes the gate of writes, if there is none.
func (c *conn) outGate() (*gate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, net.ErrClosed
	case c.out != nil:
		return c.out, nil
	}
	out, err := newGate(c.in.socket, unix.EPOLLOUT)
	if err != nil {
		return nil, err
	}
	if err := out.file.SetReadDeadline(c.writeBy); err != nil {
		return nil, errors.Join(err, out.file.Close())
	}
	c.out = out
	return out, nil
}
