package httpd

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/test/pipe"
	"github.com/rs/zerolog"
)

// serving is a Serve under test.
type serving struct {
	*pipe.Listener
	stop  context.CancelFunc
	ended chan error
}

func serve(t *testing.T, connections int, h http.HandlerFunc) *serving {
	t.Helper()
	l := listen()
	ctx, stop := context.WithCancel(context.Background())
	s := &serving{l, stop, make(chan error, 1)}
	go func() { s.ended <- Serve(ctx, l, Options{Handler: h, Connections: connections, Log: zerolog.Nop()}) }()
	t.Cleanup(func() {
		stop()
		time.Sleep(time.Second) // net/http holds a connection that it closes for half of that
	})
	return s
}

// listen makes a listener with an address of TCP.
func listen() *pipe.Listener {
	return pipe.ListenAt(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9460})
}

func dial(t *testing.T, l *pipe.Listener) net.Conn {
	t.Helper()
	conn, err := l.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// ask sends the head of a request.
func (s *serving) ask(t *testing.T, head string) net.Conn {
	t.Helper()
	conn := dial(t, s.Listener)
	if _, err := io.WriteString(conn, head); err != nil {
		t.Fatal(err)
	}
	return conn
}

func answer(t *testing.T, conn net.Conn) string {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (s *serving) end(t *testing.T) {
	t.Helper()
	s.stop()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

const get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

// TestEndWaitsForHandlers: the end tells handlers by their contexts, lets them
// answer, and comes after the last, also where one has lost its connection.
func TestEndWaitsForHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, goOn, over := make(chan struct{}, 2), make(chan struct{}), make(chan struct{})
		s := serve(t, 4, func(w http.ResponseWriter, r *http.Request) {
			here <- struct{}{}
			<-r.Context().Done()
			if r.URL.Path == "/late" {
				<-goOn
				close(over)
				return
			}
			_, _ = io.WriteString(w, "stopping")
		})
		quick := s.ask(t, get)
		late := s.ask(t, strings.Replace(get, "/", "/late", 1))
		<-here
		<-here
		begun := time.Now()
		s.stop()
		if says := answer(t, quick); says != "stopping" {
			t.Errorf("it is told %q", says)
		}
		if _, err := late.Read(make([]byte, 1)); err == nil || time.Since(begun) != endTimeout {
			t.Errorf("the connection of the last handler is closed after %v, %v", time.Since(begun), err)
		}
		synctest.Wait()
		select {
		case <-s.ended:
			t.Error("it ends before the last handler")
		default:
		}
		close(goOn)
		s.end(t)
		<-over
	})
}

// TestHandlerEndsWithItsClient: the context of a request ends when its client
// leaves.
func TestHandlerEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, left := make(chan struct{}), make(chan struct{})
		s := serve(t, 4, func(_ http.ResponseWriter, r *http.Request) {
			close(here)
			<-r.Context().Done()
			close(left)
		})
		conn := s.ask(t, get)
		<-here
		conn.Close()
		<-left
		s.end(t)
	})
}

// TestAcceptFails: a listener that fails is an error, and the end of Serve.
func TestAcceptFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := listen()
		l.Close()
		if err := Serve(t.Context(), l, Options{Handler: http.NotFoundHandler(), Connections: 1, Log: zerolog.Nop()}); err == nil {
			t.Error("no error")
		}
	})
}

// TestLongHeader: a header beyond the bound is refused.
func TestLongHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, 4, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "answered") })
		conn := s.ask(t, strings.Replace(get, "Host: x", "Host: x\r\nX: "+strings.Repeat("x", HeaderBytes+8<<10), 1))
		if says := answer(t, conn); !strings.Contains(says, "Request Header Fields Too Large") {
			t.Errorf("it is told %q", says)
		}
	})
}

// TestConnLimitSparesRequests: a connection that is being answered stays, and with
// nothing but such ones a new one is closed.
func TestConnLimitSparesRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, goOn := make(chan struct{}), make(chan struct{})
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			here <- struct{}{}
			<-goOn
			_, _ = io.WriteString(w, "done")
		})}
		newConnLimit(2).wrap(srv)
		l := listen()
		go func() { _ = srv.Serve(l) }() // it ends with Close
		defer srv.Close()
		ask := func() net.Conn {
			conn := dial(t, l)
			if _, err := io.WriteString(conn, get); err != nil {
				t.Fatal(err)
			}
			return conn
		}
		both := []net.Conn{ask(), ask()}
		<-here
		<-here
		third := dial(t, l)
		_, _ = io.WriteString(third, get) // it may be closed already
		if n, err := third.Read(make([]byte, 1)); err == nil {
			t.Errorf("one too many is answered, with %d bytes", n)
		}
		close(goOn)
		for _, conn := range both {
			if says := answer(t, conn); says != "done" {
				t.Errorf("one that was being answered is told %q", says)
			}
		}
	})
}
