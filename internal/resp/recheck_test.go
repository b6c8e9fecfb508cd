package resp_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/resp"
)

// A connection whose client may not connect any more is closed; others go on,
// and keep the settings that they began with.
func TestRecheckAndSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shut atomic.Bool
		r := newRig(t, resp.Options{Admit: func(conn net.Conn) (access.Peer, error) {
			if conn.LocalAddr().Network() == "unix" && shut.Load() {
				return nil, errors.New("not you")
			}
			return nil, nil
		}})
		local, remote := r.dial(r.unix), r.dial(r.tcp)
		says := func(c *conn, command, want string) { c.says(t, command, want) }
		says(local, "PING", "+PONG")
		r.server.Recheck()
		says(local, "PING", "+PONG")
		says(remote, "GET", "-ERR wrong number of arguments for 'get' command")
		shut.Store(true)
		r.server.Recheck()
		if _, err := local.in.ReadByte(); err == nil {
			t.Error("a client that may not connect any more is served")
		}
		r.server.Set(resp.Settings{}) // for connections that come now
		says(remote, "GET", "-ERR wrong number of arguments for 'get' command")
		if _, err := r.dial(r.tcp).Write(encode("GET")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := r.server.Stats().HungUp; n != 1 {
			t.Errorf("%d are disconnected that know no errors, want 1", n)
		}
	})
}

// says sends a command and wants a line.
func (c *conn) says(t *testing.T, command, want string) {
	t.Helper()
	if _, err := c.Write(encode(strings.Fields(command)...)); err != nil {
		t.Fatal(err)
	}
	if line, err := c.in.ReadString('\n'); line != want+"\r\n" {
		t.Errorf("%s: %q, %v", command, line, err)
	}
}

// changing is a peer whose rights change.
type changing struct{ rights atomic.Uint32 }

func (p *changing) Rights() access.Rights { return access.Rights(p.rights.Load()) }

// A command of a transaction takes its right when it is queued, and once more when
// it is executed.
func TestTransactionOfLostRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var peer changing
		r := newRig(t, resp.Options{Admit: func(net.Conn) (access.Peer, error) { return &peer, nil }})
		c := r.dial(r.unix)
		peer.rights.Store(uint32(access.Read | access.Write))
		c.says(t, "SET name 1", "+OK")
		for _, command := range []string{"MULTI", "GET name", "SET name 2", "PING"} {
			want := "+QUEUED"
			if command == "MULTI" {
				want = "+OK"
			}
			c.says(t, command, want)
		}
		peer.rights.Store(uint32(access.Write))
		const denied = "-NOPERM '%s' takes the %s right, which this client lacks; see access"
		c.says(t, "EXEC", "*3")
		for _, want := range []string{fmt.Sprintf(denied, "get", "read"), "+OK", "+PONG"} {
			if line, err := c.in.ReadString('\n'); line != want+"\r\n" {
				t.Errorf("%q, %v; want %q", line, err, want)
			}
		}
	})
}
