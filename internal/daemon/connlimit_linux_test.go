package daemon

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestAdminConnLimit: however many connections are held open, one more is answered;
// those that were idle the longest go for it.
func TestAdminConnLimit(t *testing.T) {
	cfg := smallConfig(t)
	cfg.Admin.Listen = "127.0.0.1:0"
	addr := serve(t, cfg).admin.Addr().String()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	first := dial()
	for i := range adminConnections + 20 {
		conn := dial()
		if i%8 > 0 { // and half a request
			if _, err := conn.Write([]byte("GET /metrics HTTP/1.1\r\nHost:")); err != nil {
				t.Fatal(err)
			}
		}
	}
	resp, err := http.Get("http://" + addr + "/healthz")
	if err != nil {
		t.Fatalf("a probe is kept out: %v", err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "ok\n" {
		t.Errorf("a probe is told %q, %v", b, err)
	}
	_ = first.SetReadDeadline(time.Now().Add(5 * time.Second)) // sooner than any timeout
	if _, err := first.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the first connection is still open: %v", err)
	}
}

// TestConnLimitSparesRequests: a connection that is being answered stays, and with
// nothing but such ones a new one is closed.
func TestConnLimitSparesRequests(t *testing.T) {
	here, goOn := make(chan struct{}), make(chan struct{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		here <- struct{}{}
		<-goOn
		_, _ = io.WriteString(w, "done")
	}))
	newConnLimit(2).wrap(srv.Config)
	srv.Start()
	defer srv.Close()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	both := []net.Conn{dial(), dial()}
	<-here
	<-here
	third := dial()
	if n, err := third.Read(make([]byte, 1)); err == nil {
		t.Errorf("one too many is answered, with %d bytes", n)
	}
	close(goOn)
	for _, conn := range both {
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("one that was being answered: %v", err)
			continue
		}
		if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "done" {
			t.Errorf("it is told %q, %v", b, err)
		}
	}
}
