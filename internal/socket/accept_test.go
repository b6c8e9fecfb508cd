package socket

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// script is a listener whose accepts are written down; after the last it waits.
type script struct {
	results []any // net.Conn or error
	closed  chan struct{}
	closes  atomic.Int32
}

func (s *script) Accept() (net.Conn, error) {
	if len(s.results) == 0 {
		<-s.closed
		return nil, net.ErrClosed
	}
	next := s.results[0]
	s.results = s.results[1:]
	if err, ok := next.(error); ok {
		return nil, err
	}
	return next.(net.Conn), nil
}

func (s *script) Close() error {
	if s.closes.Add(1) == 1 {
		close(s.closed)
	}
	return nil
}

func (s *script) Addr() net.Addr { return &net.UnixAddr{Name: "test", Net: "unix"} }

func TestShortageIsWaitedOutAndTheEndIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		mine, theirs := net.Pipe()
		l := &script{results: []any{&net.OpError{Op: "accept", Err: syscall.EMFILE}, mine}, closed: make(chan struct{})}
		served, over := make(chan struct{}), false
		go func() {
			<-served
			cancel()
		}()
		err := Serve(ctx, l, zerolog.Nop(), always(func(ctx context.Context, conn net.Conn) {
			close(served)
			<-ctx.Done()
			over = true
		}))
		if err != nil || !over || l.closes.Load() == 0 {
			t.Errorf("Serve: %v; the connection ended: %t; closed %d times", err, over, l.closes.Load())
		}
		if _, err := theirs.Write([]byte("x")); err == nil {
			t.Error("the connection is still open")
		}
	})
}

// TestShortageIsToldOnceAMinute: while there are no descriptors accepting is
// tried again and again, and the log has a line a minute with how often.
func TestShortageIsToldOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
		defer cancel()
		l := &script{closed: make(chan struct{})}
		for range 10_000 {
			l.results = append(l.results, &net.OpError{Op: "accept", Err: syscall.EMFILE})
		}
		var log bytes.Buffer
		if err := Serve(ctx, l, zerolog.New(&log), always(func(context.Context, net.Conn) {})); err != nil {
			t.Error(err)
		}
		tried := 10_000 - len(l.results)
		if most := int(150*time.Second/pause) + 1; tried < most-1 || tried > most {
			t.Errorf("accepting was tried %d times, want about %d", tried, most)
		}
		var told []int
		for line := range strings.Lines(log.String()) {
			var entry struct {
				Times int
				Error string
			}
			if err := json.Unmarshal([]byte(line), &entry); err != nil || !strings.Contains(entry.Error, "too many open files") {
				t.Errorf("the log says %q: %v", line, err)
			}
			told = append(told, entry.Times)
		}
		if per := int(time.Minute / pause); !slices.Equal(told, []int{1, per, per}) {
			t.Errorf("lines tell of %v failures, want 1 and then %d a minute", told, per)
		}
	})
}

// What does not come back ends the server, its connections first.
func TestFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := net.Pipe()
		l := &script{results: []any{mine, syscall.EINVAL}, closed: make(chan struct{})}
		var over atomic.Bool
		err := Serve(t.Context(), l, zerolog.Nop(), always(func(ctx context.Context, _ net.Conn) {
			<-ctx.Done()
			over.Store(true)
		}))
		if !errors.Is(err, syscall.EINVAL) || !over.Load() || l.closes.Load() == 0 {
			t.Errorf("Serve: %v; the connection ended: %t; closed %d times", err, over.Load(), l.closes.Load())
		}
	})
}

// A connection without a handler is closed before the next one is accepted, and costs no
// goroutine.
func TestServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := &script{closed: make(chan struct{})}
		var theirs []net.Conn
		for range 4 {
			a, b := net.Pipe()
			l.results, theirs = append(l.results, a), append(theirs, b)
		}
		admitted := 0
		var served atomic.Int32
		go func() {
			synctest.Wait()
			cancel()
		}()
		err := Serve(ctx, l, zerolog.Nop(), func(net.Conn) Handler {
			if admitted++; admitted < 4 {
				for i, c := range theirs[:admitted-1] {
					if _, err := c.Write([]byte("x")); err == nil {
						t.Errorf("connection %d is open while the next is looked at", i)
					}
				}
				return nil
			}
			return func(context.Context, net.Conn) { served.Add(1) }
		})
		if err != nil || admitted != 4 || served.Load() != 1 {
			t.Errorf("Serve: %v; of %d connections %d were served, want 1 of 4", err, admitted, served.Load())
		}
	})
}

// always has one handler for all connections.
func always(h Handler) func(net.Conn) Handler { return func(net.Conn) Handler { return h } }
