package resp_test

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/resp"
)

// TestWebPage: requests that a web page has a browser send are cut off before anything of
// them counts, and told with their peer. Commands before them have been done.
func TestWebPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newRig(t, resp.Options{Log: zerolog.New(zerolog.SyncWriter(&log))})
		r.dial(r.unix).do("+OK\r\n", "SET", "kept", "1")
		const planted = "SET planted 1\r\nDEL kept\r\n*3\r\n$3\r\nSET\r\n$7\r\nplanted\r\n$1\r\n1\r\n"
		cut := uint64(0)
		for _, head := range []string{
			"POST / HTTP/1.1\r\nHost: 127.0.0.1:6379\r\nContent-Type: text/plain\r\n\r\n",
			"post /x HTTP/1.1\r\n\r\n",
			"POST\r\n",
			"host: a\r\n",
			"\r\nHOST: a\r\n\r\n",
			"  POST / HTTP/1.0\n\n",
		} {
			for _, addr := range []net.Addr{r.unix, r.tcp} {
				c := r.dial(addr)
				c.send([]byte("*1\r\n$4\r\nPING\r\n" + head + planted))
				c.expect("+PONG\r\n")
				c.closed("no web server")
				cut++
			}
		}
		for _, head := range []string{ // without a field Host before it is over
			"PUT /planted HTTP/1.1\r\n", "OPTIONS / HTTP/1.1\r\n", "GET /planted HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n",
		} {
			for _, addr := range []net.Addr{r.unix, r.tcp} {
				c := r.dial(addr)
				c.send([]byte(head + planted))
				c.closed("no web server")
				cut++
			}
		}
		for _, line := range []string{"SET planted 1\r\n", "PING planted\r\n", "QUIT\r\n", "EHLO x\r\n", "GET kept\r\n"} {
			for _, addr := range []net.Addr{r.unix, r.tcp} {
				c := r.dial(addr)
				c.send([]byte(line + planted))
				c.closed("an array of bulk strings")
				cut++
			}
		}
		c := r.dial(r.unix)
		c.do("$-1\r\n", "GET", "planted")
		c.do(bulk("1"), "GET", "kept")
		if n := r.server.Stats().Malformed; n != cut {
			t.Errorf("%d malformed, want %d", n, cut)
		}
		if said := log.String(); !strings.Contains(said, "a web page may try to write here") || !strings.Contains(said, `"client":"`) || strings.Contains(said, "planted") {
			t.Errorf("the log says %s", said)
		}
	})
}
