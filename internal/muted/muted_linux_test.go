package muted

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair returns the two ends of a connection, the first of them muted.
func pair(t testing.TB) (*conn, *net.UnixConn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	muted, ok := New(near).(*conn)
	if !ok {
		t.Fatal("it is not muted")
	}
	t.Cleanup(func() { muted.Close() })
	return muted, far.(*net.UnixConn)
}

// Bytes written at one end come at the other, though the readers sleep at times
// and the writers find the socket full.
func TestBothWays(t *testing.T) {
	near, far := pair(t)
	const total = 8 << 20
	var wg sync.WaitGroup
	send := func(c net.Conn, seed uint64, pause bool) {
		r := rand.New(rand.NewPCG(seed, 0))
		for sent := 0; sent < total; {
			p := make([]byte, min(total-sent, 1+r.IntN(256<<10)))
			for i := range p {
				p[i] = byte(sent + i + (sent+i)>>8)
			}
			if n, err := c.Write(p); err != nil || n != len(p) {
				t.Errorf("write %d of %d: %v", n, len(p), err)
				return
			}
			if sent += len(p); pause && r.IntN(4) == 0 {
				time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
			}
		}
	}
	receive := func(c net.Conn, pause bool) {
		p := make([]byte, 100_000)
		for got := 0; got < total; {
			n, err := c.Read(p)
			if err != nil {
				t.Errorf("read after %d: %v", got, err)
				return
			}
			for i, b := range p[:n] {
				if b != byte(got+i+(got+i)>>8) {
					t.Errorf("a wrong byte at %d", got+i)
					return
				}
			}
			if got += n; pause {
				time.Sleep(100 * time.Microsecond)
			}
		}
	}
	wg.Go(func() { send(near, 1, true) })
	wg.Go(func() { send(far, 2, true) })
	wg.Go(func() { receive(near, true) })
	wg.Go(func() { receive(far, true) })
	wg.Wait()
}

// Each of many messages wakes the reader, at any moment.
func TestWakes(t *testing.T) {
	near, far := pair(t)
	n := 20_000
	if testing.Short() {
		n = 2000
	}
	go func() {
		b := make([]byte, 1)
		for {
			if _, err := io.ReadFull(near, b); err != nil {
				return
			}
			if _, err := near.Write(b); err != nil {
				return
			}
		}
	}()
	b := make([]byte, 1)
	_ = far.SetDeadline(time.Now().Add(time.Minute))
	for i := range n {
		if _, err := far.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(far, b); err != nil || b[0] != byte(i) {
			t.Fatalf("message %d: %d, %v", i, b[0], err)
		}
		for range i % 300 { // at another moment
			_ = bytes.IndexByte(b, 7)
		}
	}
}

// A goroutine that polls the socket itself is not heard of by the runtime's poller,
// before it has slept and after.
func TestMuted(t *testing.T) {
	near, far := pair(t)
	open := func() bool {
		fds := []unix.PollFd{{Events: unix.POLLIN}}
		_ = near.in.raw.Control(func(fd uintptr) {
			fds[0].Fd = int32(fd)
			_, _ = unix.Poll(fds, 0)
		})
		return fds[0].Revents != 0
	}
	poll := func() {
		t.Helper()
		if _, err := far.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if open() {
			t.Error("the runtime is told of a message for which nobody sleeps")
		}
		if n, err := near.Read(make([]byte, 8)); n != 1 || err != nil {
			t.Error(n, err)
		}
	}
	poll()
	time.AfterFunc(20*time.Millisecond, func() { _, _ = far.Write([]byte("y")) })
	if n, err := near.Read(make([]byte, 8)); n != 1 || err != nil {
		t.Error(n, err)
	}
	poll()
	_ = near.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := near.Read(make([]byte, 8)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	_ = near.SetReadDeadline(time.Time{})
	for range 2 { // the first may open the gate that the sleeper has left behind
		if _, err := far.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if n, err := near.Read(make([]byte, 8)); n != 1 || err != nil {
			t.Error(n, err)
		}
	}
	poll()
}

// What ends a wait, of reads and of writes.
func TestEnds(t *testing.T) {
	full := func(c *conn) error {
		for {
			if _, err := c.Write(make([]byte, 1<<20)); err != nil {
				return err
			}
		}
	}
	read := func(c *conn) error { _, err := c.Read(make([]byte, 1)); return err }
	for name, tc := range map[string]struct {
		wait func(*conn) error
		end  func(near *conn, far *net.UnixConn)
		want error
	}{
		"read, closed":           {read, func(near *conn, _ *net.UnixConn) { near.Close() }, net.ErrClosed},
		"read, deadline":         {read, func(near *conn, _ *net.UnixConn) { near.SetDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
		"read, shut":             {read, func(near *conn, _ *net.UnixConn) { near.CloseRead() }, io.EOF},
		"read, the peer closes":  {read, func(_ *conn, far *net.UnixConn) { far.Close() }, io.EOF},
		"read, the peer is half": {read, func(_ *conn, far *net.UnixConn) { far.CloseWrite() }, io.EOF},
		"write, closed":          {full, func(near *conn, _ *net.UnixConn) { near.Close() }, net.ErrClosed},
		"write, deadline":        {full, func(near *conn, _ *net.UnixConn) { near.SetWriteDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
		"write, shut":            {full, func(near *conn, _ *net.UnixConn) { near.CloseRead(); near.CloseWrite() }, syscall.EPIPE},
		"write, the peer closes": {full, func(_ *conn, far *net.UnixConn) { far.Close() }, syscall.EPIPE},
	} {
		for _, before := range []bool{false, true} {
			near, far := pair(t)
			if before {
				tc.end(near, far)
			} else {
				time.AfterFunc(10*time.Millisecond, func() { tc.end(near, far) })
			}
			err := tc.wait(near)
			if !errors.Is(err, tc.want) && !(errors.Is(tc.want, syscall.EPIPE) && errors.Is(err, syscall.ECONNRESET)) {
				t.Errorf("%s, before the wait %t: %v, want %v", name, before, err, tc.want)
			}
		}
	}
}

// A descriptor is closed once, and not while it is in use.
func TestClose(t *testing.T) {
	near, _ := pair(t)
	raw, err := near.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		if err := near.Close(); err != nil {
			t.Error(err)
		}
		if _, err := unix.FcntlInt(fd, unix.F_GETFD, 0); err != nil {
			t.Error("the descriptor was closed in its use: ", err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"close": near.Close(), "control": raw.Control(func(uintptr) {}), "deadline": near.SetDeadline(time.Time{}),
		"shut": near.CloseWrite(), "read": raw.Read(func(uintptr) bool { return true }), "write": raw.Write(func(uintptr) bool { return true }),
	} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
}

// Where there is no room for another descriptor, and for other networks, the
// connection is returned unchanged.
func TestStays(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if New(a) != a {
		t.Error("a pipe was taken over")
	}
	closed, _ := pair(t)
	closed.Close()
	if New(closed) != net.Conn(closed) {
		t.Error("a muted connection was taken over")
	}
}

// The hot path allocates nothing.
func TestAllocates(t *testing.T) {
	near, far := pair(t)
	raw, err := near.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	read := func(fd uintptr) bool { _, err := unix.Read(int(fd), b[:]); return err != unix.EAGAIN }
	write := func(fd uintptr) bool { _, err := unix.Write(int(fd), b[:]); return err != unix.EAGAIN }
	if n := testing.AllocsPerRun(100, func() {
		if _, err := far.Write(b[:]); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(raw.Read(read), raw.Write(write)); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for a message", n)
	}
}
