package conformance_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	program := cProgram(t, "kvstored.c", "test/conformance.c")
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
		c, err := wire.NewConn(conn.(*net.UnixConn), 0)
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
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("ping\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dialed := make(chan error, 2)
	go func() {
		out, err := exec.CommandContext(t.Context(), program, d.Socket, script).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("the C client: %w: %s", err, out)
		}
		dialed <- err
	}()
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
	for range cap(dialed) {
		if err := <-dialed; err != nil {
			t.Errorf("a client that waits for the daemon: %v", err)
		}
	}
}

// TestRefusedUnread: the C client understands a refusal of a daemon that has not read its
// hello.
func TestRefusedUnread(t *testing.T) {
	program := cProgram(t, "kvstored.c", "test/conformance.c")
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
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("ping\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), program, socket, script).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "takes no further connection") {
		t.Errorf("%v, %s", err, out)
	}
}
