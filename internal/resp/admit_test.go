package resp_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/resp"
)

// Who may not connect hears why, and nothing else.
func TestAdmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, resp.Options{Admit: func(conn net.Conn) (access.Peer, error) {
			if conn.LocalAddr().Network() == "unix" {
				return nil, errors.New("not you")
			}
			return nil, nil
		}})
		if b, err := io.ReadAll(r.dial(r.unix)); string(b) != "-NOPERM not you\r\n" || err != nil {
			t.Errorf("it is told %q, %v", b, err)
		}
		c := r.dial(r.tcp)
		if _, err := c.Write([]byte("PING\r\n")); err != nil {
			t.Fatal(err)
		}
		if line, err := c.in.ReadString('\n'); line != "+PONG\r\n" {
			t.Errorf("over TCP it is told %q, %v", line, err)
		}
		if st := r.server.Stats(); st.Refused != 1 || st.ConnectionsTotal != 1 {
			t.Errorf("counted: %+v", st)
		}
	})
}
