package conformance_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/internal/wire"
)

// TestStarting: a client that waits longer than a daemon starts is served as soon as the
// daemon is ready; one that does not is told. Here something else says in the daemon's
// place that it is starting; what a daemon says then is internal/server's TestStartingTells.
func TestStarting(t *testing.T) {
	d := daemon.Start(t, func(*config.Config) {})
	socket := filepath.Join(filepath.Dir(d.Socket), "early")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	told, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			starting(conn)
			select {
			case told <- struct{}{}:
			default:
			}
		}
	}()
	if _, err := client.Dial(t.Context(), socket, client.Options{Timeout: time.Second}); !errors.Is(err, client.ErrStarting) {
		t.Errorf("a client that waits for a second: %v", err)
	}
	select {
	case <-told:
	default:
	}
	dialed := make(chan error, 1)
	go func() {
		c, err := client.Dial(t.Context(), socket, client.Options{Timeout: time.Minute})
		if err == nil {
			err = c.Ping(t.Context())
			c.Close()
		}
		dialed <- err
	}()
	select {
	case <-told:
	case err := <-dialed:
		t.Fatalf("a client that waits for a minute: %v", err)
	}
	if err := os.Rename(d.Socket, socket); err != nil { // the daemon is there from now on
		t.Fatal(err)
	}
	_ = l.Close()
	<-ended
	if err := <-dialed; err != nil {
		t.Errorf("a client that waits for the daemon: %v", err)
	}
}

// starting answers a hello as a daemon does that is not ready.
func starting(conn net.Conn) {
	defer conn.Close()
	c, err := wire.NewConn(conn.(*net.UnixConn))
	if err != nil {
		return
	}
	if h, _, err := c.ReadFrame(); err == nil {
		_, _ = c.Write(wire.AppendError(nil, h.Op, h.ID, wire.CodeStarting, &wire.ErrorReply{Retry: wire.RetryReconnect, AfterMillis: 10, Text: "it is starting"}))
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
