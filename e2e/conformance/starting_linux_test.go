package conformance_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/internal/wire"
)

// TestStarting: a daemon that is long in starting says so to each client, and those
// that wait are served as soon as it is ready. What holds it up here is a password
// that does not come.
func TestStarting(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "password")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	d := daemon.Folder(t, func(c *config.Config) {
		c.Listen.RESP = []string{filepath.Join(filepath.Dir(c.Listen.Socket), "resp.sock")}
		c.Listen.RESPPasswordFile = fifo
	})
	d.Launch()
	hello := func() wire.ErrorReply {
		var conn net.Conn
		var err error
		for conn == nil {
			if conn, err = net.Dial("unix", d.Socket); err != nil && !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ECONNREFUSED) {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		defer conn.Close()
		c, err := wire.NewConn(conn.(*net.UnixConn))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(wire.AppendRequest(nil, wire.OpHello, 7, &wire.HelloRequest{MinVersion: 2, MaxVersion: 2})); err != nil {
			t.Fatal(err)
		}
		h, body, err := c.ReadFrame()
		if err != nil || h.Code != wire.CodeStarting || h.ID != 7 && h.ID != 0 || h.Op != wire.OpHello { // 0: it came late
			t.Fatalf("%+v, %v; want it to say that it is starting", h, err)
		}
		var m wire.ErrorReply
		if err := m.Decode(body); err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := hello(); m.Retry != wire.RetryReconnect || m.AfterMillis == 0 {
		t.Errorf("%+v; want it to say when to come back", m)
	}
	for wait := time.Second; ; wait *= 2 { // until it is long enough for one answer
		if _, err := client.Dial(t.Context(), d.Socket, client.Options{Timeout: wait}); errors.Is(err, client.ErrStarting) {
			break
		} else if !errors.Is(err, client.ErrNoAnswer) || wait > time.Minute {
			t.Fatalf("a client that waits for %v: %v", wait, err)
		}
	}
	dialed := make(chan error, 1)
	go func() {
		c, err := client.Dial(t.Context(), d.Socket, client.Options{Timeout: time.Minute})
		if err == nil {
			err = c.Ping(t.Context())
			c.Close()
		}
		dialed <- err
	}()
	hello()
	if err := os.WriteFile(fifo, []byte("secret\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := <-dialed; err != nil {
		t.Errorf("a client that waits for the daemon: %v", err)
	}
}

// TestRefusedUnread: a refusal by a daemon that has not read the hello reaches the client.
func TestRefusedUnread(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "full")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			_, _ = conn.Write(wire.AppendError(nil, wire.OpHello, 0, wire.CodeOverBudget, &wire.ErrorReply{Text: "it is full"}))
			_ = conn.Close()
		}
	}()
	if _, err := client.Dial(t.Context(), socket, client.Options{}); !errors.Is(err, client.ErrOverBudget) {
		t.Error(err)
	}
}
