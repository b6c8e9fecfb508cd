package redis_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
)

// TestAllowUIDs: who is not among the users that may connect is refused at
// every socket, and who is gets in.
func TestAllowUIDs(t *testing.T) {
	const friend, stranger = 12345, 12346
	var resp string
	d := daemon.Start(t, func(c *config.Config) {
		dir := filepath.Dir(c.Listen.Socket)
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		resp = filepath.Join(dir, "resp.sock")
		c.CPU.Capacity = 64 << 20
		c.Listen.Mode, c.Listen.AllowUIDs, c.Listen.RESP = 0o666, []uint32{friend}, []string{resp}
	})
	dial := func(uid uintptr, path string) net.Conn {
		var conn net.Conn
		var err error
		daemon.As(t, uid, func() { conn, err = net.Dial("unix", path) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	// The daemon's own protocol.
	for uid, want := range map[uintptr]error{friend: nil, stranger: client.ErrDenied} {
		daemon.As(t, uid, func() {
			c, err := client.Dial(t.Context(), d.Socket, client.Options{Inline: true})
			if !errors.Is(err, want) {
				t.Errorf("user %d: %v, want %v", uid, err, want)
			}
			if err == nil {
				c.Close()
			}
		})
	}
	// Redis.
	c := dial(friend, resp)
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	if b := make([]byte, 7); !reads(c, b) || string(b) != "+PONG\r\n" {
		t.Errorf("a friend is told %q", b)
	}
	if b, _ := io.ReadAll(dial(stranger, resp)); !strings.HasPrefix(string(b), "-NOPERM") || !strings.Contains(string(b), "user 12346 may not connect; add it to listen.allow_uids") {
		t.Errorf("a stranger is told %q", b)
	}
	d.AwaitSaid("user 12346 may not connect")
}

func reads(r io.Reader, b []byte) bool {
	_, err := io.ReadFull(r, b)
	return err == nil
}
