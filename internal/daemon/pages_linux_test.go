package daemon

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestPageConnLimit: however many connections are held open, one more is answered;
// those that were idle the longest go for it.
func TestPageConnLimit(t *testing.T) {
	cfg := smallConfig(t)
	cfg.Admin.Listen, cfg.Disk.Capacity = "127.0.0.1:0", 0
	addr := serve(t, cfg).pages.Addr().String()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	first := dial()
	for i := range pageConnections + 20 {
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
