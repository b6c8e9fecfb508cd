package reload

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/key"
)

// publicDaemon is a daemon whose sockets every user may use.
func publicDaemon(t *testing.T, edit func(c *config.Config)) (d *daemon.Daemon, resp string) {
	d = daemon.Start(t, func(c *config.Config) {
		dir := filepath.Dir(c.Listen.Socket)
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		resp = filepath.Join(dir, "resp.sock")
		c.CPU.Capacity = 64 << 20
		c.Listen.Mode, c.Listen.RESP = 0o666, []string{resp}
		edit(c)
	})
	return d, resp
}

var usersSpace = key.Space{Model: "users", World: 1, DType: "none", ChunkTokens: 4, Method: "given:test"}

// dialAs is a client of another user, or why there is none.
func dialAs(t *testing.T, d *daemon.Daemon, uid uintptr) (c *client.Client, err error) {
	t.Helper()
	daemon.As(t, uid, func() {
		c, err = client.Dial(t.Context(), d.Socket, client.Options{StagingBytes: 1 << 20, Space: &usersSpace})
	})
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

func wantRefused(t *testing.T, err error, text string) {
	t.Helper()
	if !errors.Is(err, client.ErrOverBudget) || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want it to be over budget and to say %q", err, text)
	}
}

// TestRightsOfUsers: the kernel says who connects, and so what they may do.
func TestRightsOfUsers(t *testing.T) {
	const friend, admin, stranger = 20001, 20002, 20003
	open, _ := publicDaemon(t, func(*config.Config) {})
	closed, _ := publicDaemon(t, func(c *config.Config) {
		c.Listen.AllowUIDs, c.Listen.AdminUIDs = []uint32{friend, admin}, []uint32{admin}
	})
	for _, tt := range []struct {
		d      *daemon.Daemon
		uid    uintptr
		rights client.Rights // 0: it may not connect
	}{
		{open, stranger, client.RightRead | client.RightWrite},
		{closed, friend, client.RightRead | client.RightWrite},
		{closed, admin, client.RightRead | client.RightWrite | client.RightAdmin},
		{closed, stranger, 0},
	} {
		switch c, err := dialAs(t, tt.d, tt.uid); {
		case err != nil && (tt.rights != 0 || !errors.Is(err, client.ErrDenied)):
			t.Errorf("user %d: %v", tt.uid, err)
		case err == nil && c.Rights() != tt.rights:
			t.Errorf("user %d has the rights %d, want %d", tt.uid, c.Rights(), tt.rights)
		}
	}
}

// TestUserConnections: what one user may have is not what others may, front
// ends count, administrators always get in, and returned memory can be had.
func TestUserConnections(t *testing.T) {
	d, resp := publicDaemon(t, func(c *config.Config) {
		c.Limits.Connections, c.Limits.UIDConnections = 64, 12
	})
	const first = 20001
	var mine []*client.Client
	for range 11 {
		c, err := dialAs(t, d, first)
		if err != nil {
			t.Fatal(err)
		}
		mine = append(mine, c)
	}
	dialRESP := func() (conn net.Conn) {
		var err error
		daemon.As(t, first, func() { conn, err = net.Dial("unix", resp) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	conn := dialRESP()
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	if b := make([]byte, 7); !reads(conn, b) || string(b) != "+PONG\r\n" {
		t.Fatalf("the twelfth is told %q", b)
	}
	const full = "user 20001 has its 12 connections; use fewer, or raise limits.uid_connections"
	_, err := dialAs(t, d, first)
	wantRefused(t, err, full)
	if b, _ := io.ReadAll(dialRESP()); !strings.HasPrefix(string(b), "-ERR max number of clients reached: "+full) {
		t.Errorf("a Redis client too many is told %q", b)
	}
	// Others fill the places for all but administrators: 48 of 64.
	for i := range 36 {
		if _, err := dialAs(t, d, first+1+uintptr(i/12)); err != nil {
			t.Fatalf("connection %d of others: %v", i, err)
		}
	}
	_, err = dialAs(t, d, first+10)
	wantRefused(t, err, "the daemon has its 48 connections and keeps 16 for its administrators; use fewer, or raise limits.connections")
	admin, err := client.Dial(t.Context(), d.Socket, client.Options{Inline: true})
	if err != nil {
		t.Fatalf("an administrator: %v", err)
	}
	defer admin.Close()
	raw, err := admin.Stats(t.Context())
	var st struct {
		Server struct {
			Refused map[string]uint64 `json:"connections_refused_by"`
		} `json:"server"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &st)
	}
	if got := st.Server.Refused; err != nil || got["uid_connections"] != 2 || got["connections"] != 1 || got["hello"] != 0 {
		t.Errorf("counted %v, %v; want 2 of a user and 1 of all", got, err)
	}
	mine[0].Close()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err = dialAs(t, d, first); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a connection was given back, and nobody gets it: %v", err)
		}
	}
}

// TestUserJobs: the jobs and fills of one user are counted over all connections,
// and not with those of others.
func TestUserJobs(t *testing.T) {
	const most, each = 16 << 10, 1 << 10 // of the user; of a connection
	d, _ := publicDaemon(t, func(*config.Config) {})
	prompt := func(n byte) client.Prompt {
		return client.Hashes(16, append(make([]byte, 15), n+1), []uint32{4})
	}
	var clients [most/each + 1]*client.Client // the last one is refused
	for i := range clients {
		var err error
		if clients[i], err = dialAs(t, d, 20001); err != nil {
			t.Fatal(err)
		}
	}
	var jobs []*client.Job
	for i := range most - 4 {
		j, err := clients[i%(most/each)].Prefetch(t.Context(), prompt(0), client.PrefetchOptions{})
		if err != nil {
			t.Fatalf("job %d: %v", i, err)
		}
		jobs = append(jobs, j)
	}
	for i := range 4 {
		f, err := clients[most/each-1-i].Reserve(t.Context(), prompt(byte(1+i)), client.ReserveOptions{Size: 4096})
		if err != nil || f.Status(0) != client.Granted {
			t.Fatalf("fill %d: %v", i, err)
		}
	}
	const full = "user 20001 has 16384 jobs and fills; release some first"
	last := clients[most/each]
	_, err := last.Prefetch(t.Context(), prompt(0), client.PrefetchOptions{})
	wantRefused(t, err, full)
	other, err := dialAs(t, d, 20002)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Prefetch(t.Context(), prompt(0), client.PrefetchOptions{}); err != nil {
		t.Errorf("another user: %v", err)
	}
	if err := jobs[0].Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := last.Prefetch(t.Context(), prompt(0), client.PrefetchOptions{}); err != nil {
		t.Errorf("after a release: %v", err)
	}
	clients[1].Close() // with a part of all
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		_, err := last.Prefetch(t.Context(), prompt(0), client.PrefetchOptions{})
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after a connection has ended: %v", err)
		}
	}
}

func reads(r io.Reader, b []byte) bool {
	_, err := io.ReadFull(r, b)
	return err == nil
}
