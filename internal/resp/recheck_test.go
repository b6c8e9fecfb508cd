package resp_test

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/resp"
)

// A connection whose client may not connect any more is closed; others go on,
// and so do settings: a command is allowed from when that is set.
func TestRecheckAndSet(t *testing.T) {
	var shut atomic.Bool
	r := newRig(t, resp.Options{Admit: func(conn net.Conn) (access.Peer, error) {
		if _, local := conn.(*net.UnixConn); local && shut.Load() {
			return nil, errors.New("not you")
		}
		return nil, nil
	}})
	local, remote := r.dial(r.unix), r.dial(r.tcp)
	says := func(c *conn, command, want string) {
		t.Helper()
		if _, err := c.Write([]byte(command + "\r\n")); err != nil {
			t.Fatal(err)
		}
		if line, err := c.in.ReadString('\n'); line != want+"\r\n" {
			t.Errorf("%s: %q, %v", command, line, err)
		}
	}
	says(local, "PING", "+PONG")
	r.server.Recheck()
	says(local, "PING", "+PONG")
	says(remote, "FLUSHDB", "-ERR flushing is not allowed; set listen.resp_flush to true")
	shut.Store(true)
	r.server.Recheck()
	if _, err := local.in.ReadByte(); err == nil {
		t.Error("a client that may not connect any more is served")
	}
	r.server.Set(resp.Settings{Flush: true})
	says(remote, "FLUSHDB", "+OK")
}
