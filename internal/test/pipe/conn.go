package pipe

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// BufferBytes is what a direction holds before its writer waits: what Linux gives the
// sender of a Unix socket.
const BufferBytes = 208 << 10

// Conn is one end of a connection. Beside net.Conn it has what package wire asks of a
// connection within the process.
type Conn struct {
	in, out       *half
	local, remote net.Addr
	peer          uint32 // user at the other end
}

// New is the two ends of a connection between processes of the user that runs the test.
func New() (a, b *Conn) { return NewOf(address("pipe"), BufferBytes) }

// NewOf is New with the address of both ends, and so many bytes that a direction holds.
func NewOf(addr net.Addr, bytes int) (a, b *Conn) {
	there, back := newHalf(bytes), newHalf(bytes)
	uid := uint32(os.Geteuid())
	return &Conn{in: back, out: there, local: addr, remote: addr, peer: uid},
		&Conn{in: there, out: back, local: addr, remote: addr, peer: uid}
}

// address is a Unix socket's, so that servers take the peer for one with a user id.
func address(name string) net.Addr { return &net.UnixAddr{Name: name, Net: "unix"} }

// PeerUID is the user at the other end.
func (c *Conn) PeerUID() uint32 { return c.peer }

func (c *Conn) LocalAddr() net.Addr  { return c.local }
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// Read reads at least one byte.
func (c *Conn) Read(p []byte) (n int, err error) {
	err = c.in.await(func() (err error) { n, _, err = c.in.tryRead(p, false); return err })
	return n, c.wrap("read", err)
}

// TryRead is Read that never waits: it returns syscall.EAGAIN where nothing is there.
func (c *Conn) TryRead(p []byte) (n int, err error) {
	err = c.in.once(func() (err error) { n, _, err = c.in.tryRead(p, false); return err })
	return n, c.wrap("read", err)
}

// Receive is Read, or without block TryRead.
func (c *Conn) Receive(p []byte, block bool) (n int, err error) {
	if block {
		return c.Read(p)
	}
	return c.TryRead(p)
}

// Write writes all of p, and waits for room.
func (c *Conn) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		err = c.out.await(func() error { m, err := c.out.tryWrite(p[n:], nil); n += m; return err })
	}
	return n, c.wrap("write", err)
}

// TryWrite writes as much as there is room for, perhaps nothing.
func (c *Conn) TryWrite(p []byte) (n int, err error) {
	err = c.out.once(func() (err error) { n, err = c.out.tryWrite(p, nil); return err })
	if err == syscall.EAGAIN {
		err = nil
	}
	return n, c.wrap("write", err)
}

// WriteFiles writes some of p, at least a byte, and hands duplicates of the files over
// with the first one.
func (c *Conn) WriteFiles(p []byte, files []*os.File) (n int, err error) {
	own := make([]*os.File, len(files))
	for i, f := range files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			closeAll(own[:i])
			return 0, fmt.Errorf("duplicate %s: %w", f.Name(), err)
		}
		own[i] = os.NewFile(uintptr(fd), f.Name())
	}
	err = c.out.await(func() (err error) { n, err = c.out.tryWrite(p, own); return err })
	if err != nil {
		closeAll(own)
	}
	return n, c.wrap("write", err)
}

// ReadFiles reads at least one byte and the files that came with it, which are the
// caller's.
func (c *Conn) ReadFiles(p []byte) (n int, files []*os.File, err error) {
	err = c.in.await(func() (err error) { n, files, err = c.in.tryRead(p, true); return err })
	return n, files, c.wrap("read", err)
}

// Shut ends both directions. Unlike Close it leaves received bytes to be read.
func (c *Conn) Shut() {
	c.out.end()
	c.in.end()
}

// CloseWrite ends what this end sends.
func (c *Conn) CloseWrite() error {
	c.out.end()
	return nil
}

// Close ends the connection. Bytes on their way to the other end stay readable there.
func (c *Conn) Close() error {
	c.out.close()
	c.in.refuse()
	return nil
}

// Hung reports whether the other end has closed, or this one has.
func (c *Conn) Hung() bool {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.out.refused || c.out.ended
}

func (c *Conn) SetDeadline(t time.Time) error {
	c.in.set(&c.in.reads, t)
	c.out.set(&c.out.writes, t)
	return nil
}

func (c *Conn) SetReadDeadline(t time.Time) error {
	c.in.set(&c.in.reads, t)
	return nil
}

func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.out.set(&c.out.writes, t)
	return nil
}

// wrap makes err a network's, but for what readers compare.
func (c *Conn) wrap(op string, err error) error {
	switch err {
	case os.ErrDeadlineExceeded, net.ErrClosed, syscall.EPIPE:
		return &net.OpError{Op: op, Net: "unix", Addr: c.remote, Err: err}
	}
	return err
}
