package zmtp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/router/zmtp"
)

const greeted = "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01NULL"

// hello is a good peer's greeting and READY.
func hello(kind string) string {
	ready := "\x05READY\x0bSocket-Type\x00\x00\x00" + string(rune(len(kind))) + kind
	return greeted + strings.Repeat("\x00", 48) + "\x04" + string(rune(len(ready))) + ready
}

// dial connects to a server that says something and ends.
func dial(t *testing.T, says string) (*zmtp.Client, error) {
	l, endpoint := listen(t, "tcp")
	during(t, func(context.Context) error {
		defer l.Close()
		nc, err := l.Accept()
		if err != nil {
			return err
		}
		if _, err := io.WriteString(nc, says); err != nil {
			return err
		}
		_ = nc.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, nc)
		return nc.Close()
	})
	return zmtp.Dial(t.Context(), "SUB", endpoint, 1000, nil)
}

func TestBadHandshakes(t *testing.T) {
	for _, c := range []struct {
		name, says string
		want       error
	}{
		{"HTTP", "HTTP/1.1 400 Bad Request\r\n\r\n", zmtp.ErrProtocol},
		{"nothing", "", io.EOF},
		{"version 2", "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x00\x00", zmtp.ErrProtocol},
		{"cut short", greeted, io.ErrUnexpectedEOF},
		{"PLAIN", strings.Replace(hello("PUB"), "NULL\x00", "PLAIN", 1), zmtp.ErrProtocol},
		{"a message instead of READY", greeted + strings.Repeat("\x00", 48) + "\x00\x01x", zmtp.ErrProtocol},
		{"a huge READY", greeted + strings.Repeat("\x00", 48) + "\x06\x00\x00\x00\x00\xff\xff\xff\xff", zmtp.ErrProtocol},
		{"a property cut short", strings.Replace(hello("PUB"), "\x00\x03PUB", "\x00\x7fPUB", 1), zmtp.ErrPeer},
		{"a subscriber", hello("SUB"), zmtp.ErrPeer},
		{"an error", greeted + strings.Repeat("\x00", 48) + "\x04\x06\x05ERROR", zmtp.ErrProtocol},
	} {
		if _, err := dial(t, c.says); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestBadMessages(t *testing.T) {
	for _, c := range []struct {
		name, says string
		want       error
	}{
		{"too large", "\x02\x00\x00\x00\x00\x00\x00\x04\x00", zmtp.ErrTooLarge},
		{"too large in all", strings.Repeat("\x03\x00\x00\x00\x00\x00\x00\x01\x90"+strings.Repeat("x", 400), 3), zmtp.ErrTooLarge},
		{"too many frames", strings.Repeat("\x01\x00", 17), zmtp.ErrTooLarge},
		{"unknown flags", "\x80\x00", zmtp.ErrProtocol},
		{"cut short", "\x00\x05abc", io.ErrUnexpectedEOF},
		{"a command, and the end", "\x04\x05\x04PING", io.EOF},
	} {
		client, err := dial(t, hello("PUB")+c.says)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Receive(time.Time{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		_ = client.Close()
	}
}

func TestEndpoints(t *testing.T) {
	for endpoint, want := range map[string]string{
		"tcp://127.0.0.1:5557": "tcp 127.0.0.1:5557", "tcp://[::1]:1": "tcp [::1]:1", "ipc:///run/x": "unix /run/x",
		"tcp://*": "", "ipc://x": "", "inproc://x": "", "127.0.0.1:5557": "", "": "", "tcp://": "",
	} {
		network, addr, err := zmtp.Addr(endpoint)
		if got := network + " " + addr; err == nil && got != want || err != nil && want != "" {
			t.Errorf("%s: %s, %v", endpoint, got, err)
		}
	}
}

// A subscriber that asks for too much is closed, and others beyond the limit are too.
func TestBadSubscribers(t *testing.T) {
	l, endpoint := listen(t, "tcp")
	p := zmtp.NewPublisher(1, 1, zerolog.Nop())
	during(t, func(ctx context.Context) error { return p.Serve(ctx, l) })
	c, err := zmtp.Dial(t.Context(), "SUB", endpoint, 1000, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	until(t, func() bool { return p.Stats().Subscribers == 1 }) // its end of the handshake knows too
	if _, err := zmtp.Dial(t.Context(), "SUB", endpoint, 1000, nil); err == nil {
		t.Error("a second subscriber of one allowed")
	}
	for range 65 {
		if err := c.Subscribe("x"); err != nil {
			break
		}
	}
	if _, err := c.Receive(time.Now().Add(time.Minute)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("65 topics: %v", err)
	}
	until(t, func() bool { return p.Stats().Subscribers == 0 && p.Stats().Refused == 1 })
}

// Clients that do not go on with their handshakes keep none from its place, those
// that have a place keep it, and it is free again once they leave.
func TestHalfGreetings(t *testing.T) {
	const places = 4
	l, endpoint := listen(t, "unix")
	p := zmtp.NewPublisher(1, places, zerolog.Nop())
	during(t, func(ctx context.Context) error { return p.Serve(ctx, l) })
	half := func() {
		nc, err := net.Dial("unix", strings.TrimPrefix(endpoint, "ipc://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		if _, err := nc.Write([]byte(greeted)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(nc, make([]byte, 64)); err != nil { // its handshake has begun
			t.Fatal(err)
		}
	}
	var subscribers []*zmtp.Client
	for range places {
		for range 2 * places {
			half()
		}
		c, err := zmtp.Dial(t.Context(), "SUB", endpoint, 1000, nil)
		if err != nil {
			t.Fatalf("subscriber %d: %v", len(subscribers), err)
		}
		defer c.Close()
		subscribers = append(subscribers, c)
		until(t, func() bool { return p.Stats().Subscribers == len(subscribers) })
	}
	if _, err := zmtp.Dial(t.Context(), "SUB", endpoint, 1000, nil); err == nil {
		t.Error("a subscriber too many")
	}
	for _, c := range subscribers {
		if err := c.Subscribe("x"); err != nil {
			t.Error(err)
		}
	}
	_ = subscribers[0].Close()
	until(t, func() bool { return p.Stats().Subscribers == places-1 })
	if _, err := zmtp.Dial(t.Context(), "SUB", endpoint, 1000, nil); err != nil {
		t.Errorf("in the place of one that left: %v", err)
	}
}

func FuzzServer(f *testing.F) {
	f.Add([]byte(hello("SUB") + "\x00\x03\x01kv\x00\x01\x00"))
	f.Add([]byte(hello("SUB") + "\x04\x0c\x09SUBSCRIBEkv"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		p := zmtp.NewPublisher(1, 1, zerolog.Nop())
		l, endpoint := listen(t, "unix")
		during(t, func(ctx context.Context) error { return p.Serve(ctx, l) })
		nc, err := net.Dial("unix", strings.TrimPrefix(endpoint, "ipc://"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = nc.Write(in)
		p.Publish([]byte("kv"), nil)
		_ = nc.Close()
	})
}
