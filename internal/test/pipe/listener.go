package pipe

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
)

// backlog is how many connections wait to be accepted.
const backlog = 128

// Listener accepts what Dial connects. It is safe for concurrent use.
type Listener struct {
	addr  net.Addr
	bytes int
	conns chan *Conn
	ended chan struct{}
	close sync.Once
}

// Listen makes a listener with the address of a Unix socket at path, where nothing is.
func Listen(path string) *Listener { return ListenAt(address(path)) }

// ListenAt is Listen with any address, which both ends of a connection have.
func ListenAt(addr net.Addr) *Listener {
	return &Listener{addr: addr, bytes: BufferBytes, conns: make(chan *Conn, backlog), ended: make(chan struct{})}
}

// Accept waits for a connection.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case <-l.ended: // also where connections wait
		return nil, l.wrap("accept", net.ErrClosed)
	default:
	}
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ended:
		return nil, l.wrap("accept", net.ErrClosed)
	}
}

// Dial connects as the user that runs the test.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	return l.DialAs(ctx, uint32(os.Geteuid()))
}

// DialAs connects as another user.
func (l *Listener) DialAs(ctx context.Context, uid uint32) (net.Conn, error) {
	mine, its := NewOf(l.addr, l.bytes)
	its.peer = uid
	select {
	case <-l.ended:
		return nil, l.wrap("dial", os.NewSyscallError("connect", syscall.ECONNREFUSED))
	default:
	}
	select {
	case l.conns <- its:
		return mine, nil
	case <-l.ended:
		return nil, l.wrap("dial", os.NewSyscallError("connect", syscall.ECONNREFUSED))
	case <-ctx.Done():
		return nil, l.wrap("dial", ctx.Err())
	}
}

// Close ends the listener and the connections that wait to be accepted.
func (l *Listener) Close() error {
	err := net.ErrClosed
	l.close.Do(func() {
		err = nil
		close(l.ended)
		for {
			select {
			case c := <-l.conns:
				_ = c.Close() // never fails
			default:
				return
			}
		}
	})
	if err != nil {
		return l.wrap("close", err)
	}
	return nil
}

// Addr is the address that the listener was made with.
func (l *Listener) Addr() net.Addr { return l.addr }

func (l *Listener) wrap(op string, err error) error {
	return fmt.Errorf("pipe: %w", &net.OpError{Op: op, Net: "unix", Addr: l.addr, Err: err})
}
