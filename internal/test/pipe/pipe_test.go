package pipe_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/test/pipe"
)

// ends is a connection of the system beside one of this package: both are asked the
// same.
func ends(t *testing.T, each func(t *testing.T, a, b net.Conn)) {
	t.Run("pipe", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := pipe.New()
			defer a.Close()
			defer b.Close()
			each(t, a, b)
		})
	})
	t.Run("socket", func(t *testing.T) {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		a, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		b, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		each(t, a, b)
	})
}

// TestIsASocket: ends, deadlines and closed connections are those of a socket.
func TestIsASocket(t *testing.T) {
	read := func(c net.Conn) (string, error) {
		p := make([]byte, 16)
		n, err := c.Read(p)
		return string(p[:n]), err
	}
	for name, each := range map[string]func(t *testing.T, a, b net.Conn){
		"order": func(t *testing.T, a, b net.Conn) {
			_, _ = a.Write([]byte("one"))
			_, _ = a.Write([]byte("two"))
			if got, err := read(b); got != "onetwo" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		},
		"the end comes behind the bytes": func(t *testing.T, a, b net.Conn) {
			_, _ = a.Write([]byte("last"))
			a.Close()
			if got, err := read(b); got != "last" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
			if _, err := read(b); err != io.EOF {
				t.Error(err)
			}
			if _, err := b.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
				t.Error(err)
			}
		},
		"closed here": func(t *testing.T, a, _ net.Conn) {
			a.Close()
			if _, err := read(a); !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			if _, err := a.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		},
		"half closed": func(t *testing.T, a, b net.Conn) {
			if err := a.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if _, err := read(b); err != io.EOF {
				t.Error(err)
			}
			_, _ = b.Write([]byte("reply"))
			if got, err := read(a); got != "reply" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
			if _, err := a.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
				t.Error(err)
			}
		},
		"deadlines": func(t *testing.T, a, b net.Conn) {
			_ = b.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if _, err := read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
			_, _ = a.Write([]byte("late"))
			if _, err := read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("past its deadline: %v", err)
			}
			_ = b.SetReadDeadline(time.Time{})
			if got, err := read(b); got != "late" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
			_ = a.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
			if n, err := a.Write(make([]byte, 8<<20)); !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == 8<<20 {
				t.Errorf("a full one took %d bytes, %v", n, err)
			}
		},
		"a deadline wakes": func(t *testing.T, _, b net.Conn) {
			time.AfterFunc(10*time.Millisecond, func() { _ = b.SetReadDeadline(time.Unix(1, 0)) })
			if _, err := read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
		},
		"a close wakes": func(t *testing.T, a, b net.Conn) {
			time.AfterFunc(10*time.Millisecond, func() { b.Close() })
			if _, err := read(b); !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			_ = a.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := read(a); err != io.EOF {
				t.Error(err)
			}
		},
		"much": func(t *testing.T, a, b net.Conn) {
			sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
			failed := make(chan error, 1)
			go func() {
				_, err := a.Write(sent)
				a.Close()
				failed <- err
			}()
			got, err := io.ReadAll(b)
			if err := errors.Join(err, <-failed); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("%d of %d bytes, %v", len(got), len(sent), err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { ends(t, each) })
	}
}

// TestFiles: files come with the byte that they were sent with, as descriptors of the
// receiver's; who reads that byte without them has closed them.
func TestFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe.New()
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte("payload"), 0o600); err != nil {
			t.Fatal(err)
		}
		send := func(text string) {
			t.Helper()
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if n, err := a.WriteFiles([]byte(text), []*os.File{f}); n != len(text) || err != nil {
				t.Fatal(n, err)
			}
		}
		_, _ = a.Write([]byte("before"))
		send("with")
		send("again")
		p := make([]byte, 64)
		if n, files, err := b.ReadFiles(p); string(p[:n]) != "before" || len(files) != 0 || err != nil {
			t.Errorf("%q, %d files, %v", p[:n], len(files), err)
		}
		n, files, err := b.ReadFiles(p)
		if string(p[:n]) != "with" || len(files) != 1 || err != nil {
			t.Fatalf("%q, %d files, %v", p[:n], len(files), err)
		}
		text, err := io.ReadAll(files[0])
		files[0].Close()
		if string(text) != "payload" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		if n, err := b.Read(p); string(p[:n]) != "again" || err != nil {
			t.Errorf("%q, %v", p[:n], err)
		}
		a.Close()
		if n, files, err := b.ReadFiles(p); n != 0 || len(files) != 0 || err != io.EOF {
			t.Errorf("%d bytes, %d files, %v", n, len(files), err)
		}
		b.Close()
		if _, err := a.WriteFiles([]byte("x"), nil); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestTry: what would wait says so.
func TestTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe.New()
		p := make([]byte, 8)
		if n, err := b.TryRead(p); n != 0 || err != syscall.EAGAIN {
			t.Errorf("%d, %v", n, err)
		}
		if n, err := a.TryWrite(make([]byte, 2*pipe.BufferBytes)); n != pipe.BufferBytes || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if n, err := a.TryWrite([]byte("x")); n != 0 || err != nil {
			t.Errorf("a full one took %d, %v", n, err)
		}
		if n, err := b.TryRead(p); n != len(p) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if a.Hung() || b.Hung() {
			t.Error("it is hung up")
		}
		b.Shut()
		if !a.Hung() || !b.Hung() {
			t.Error("it is not hung up")
		}
		if n, err := b.TryRead(p); n != len(p) || err != nil {
			t.Errorf("what came before: %d, %v", n, err)
		}
		if _, err := a.Write(p); !errors.Is(err, syscall.EPIPE) {
			t.Error(err)
		}
	})
}

// TestListener: connections wait to be accepted, and end with the listener.
func TestListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pipe.Listen("/run/s")
		first, err := l.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if c.LocalAddr().Network() != "unix" || c.LocalAddr().String() != "/run/s" || c.(*pipe.Conn).PeerUID() != uint32(os.Geteuid()) {
			t.Errorf("%v of user %d", c.LocalAddr(), c.(*pipe.Conn).PeerUID())
		}
		other, err := l.DialAs(t.Context(), 1234)
		if err != nil {
			t.Fatal(err)
		}
		its, err := l.Accept()
		if err != nil || its.(*pipe.Conn).PeerUID() != 1234 {
			t.Errorf("%v", err)
		}
		waits, err := l.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		accepted := make(chan error)
		go func() {
			for {
				if _, err := l.Accept(); err != nil {
					accepted <- err
					return
				}
			}
		}()
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := <-accepted; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if _, err := l.Dial(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		full := pipe.Listen("full")
		for range 128 {
			if _, err := full.Dial(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := full.Dial(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		for _, c := range []net.Conn{first, other, waits} {
			c.Close()
		}
	})
}
