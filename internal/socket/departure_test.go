package socket

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// patience bounds what takes moments.
const patience = time.Minute

// A connection that is not read ends with its client, also behind bytes that the
// client has sent before; while the client is there, or only has no more to say,
// it goes on.
func TestDeparture(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		address := "127.0.0.1:0"
		if network == "unix" {
			address = filepath.Join(t.TempDir(), "s")
		}
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan context.Context, 3)
		var serving = make(chan error)
		go func() {
			serving <- Serve(ctx, l, zerolog.Nop(), always(func(ctx context.Context, conn net.Conn) {
				served <- ctx
				<-ctx.Done()
			}))
		}()
		dial := func() (net.Conn, context.Context) {
			t.Helper()
			c, err := net.Dial(network, l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			return c, <-served
		}
		stays, there := dial()
		defer stays.Close()
		half, quiet := dial()
		defer half.Close()
		if err := half.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		leaves, gone := dial()
		if _, err := leaves.Write([]byte("half a request")); err != nil {
			t.Fatal(err)
		}
		if tcp, ok := leaves.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // as of a process that dies with replies unread
		}
		leaves.Close()
		select {
		case <-gone.Done():
		case <-time.After(patience):
			t.Fatalf("%s: the departure is not noticed", network)
		}
		if err := context.Cause(gone); !errors.Is(err, ErrDeparted) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the cause is %v", network, err)
		}
		if there.Err() != nil || quiet.Err() != nil {
			t.Errorf("%s: clients that are there: %v, %v", network, there.Err(), quiet.Err())
		}
		stop()
		if err := <-serving; err != nil || errors.Is(context.Cause(there), ErrDeparted) {
			t.Errorf("%s: %v; the stop is %v", network, err, context.Cause(there))
		}
	}
}

// What looks like a client that has left is served for a while.
func TestHalfClosed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	d := newDepartures()
	d.halfFor = 2 * peekEvery
	ctx, gone := context.WithCancelCause(t.Context())
	defer gone(nil)
	leave := d.attend(conn, gone)
	go d.run(t.Context())
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(patience):
		t.Error("the end of a TCP client is never noticed")
	}
	leave()
	if all, first := d.list(nil); len(all) > 0 || first == nil {
		t.Errorf("%d connections are looked at after the last has ended", len(all))
	}
}
