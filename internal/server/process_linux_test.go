package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/server"
)

// childVar makes the test binary a client in a process of its own; its value
// is an order.
const childVar = "KVSTORED_SERVER_TEST_CHILD"

type order struct {
	Socket string
	Direct bool
	Leave  bool   // close the connection when told, and live on
	UID    uint32 // give up root for this first, unless 0
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childVar); text != "" {
		if err := obey(text); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// obey connects, holds a read lease and a fill, says so, and lives until told
// or killed.
func obey(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	if o.UID != 0 { // here, because the binary lies where only its owner may run it
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(int(o.UID)), syscall.Setuid(int(o.UID))); err != nil {
			return err
		}
	}
	ctx := context.Background()
	c, err := client.Dial(ctx, o.Socket, client.Options{Space: &space, Direct: o.Direct})
	if errors.Is(err, client.ErrDenied) {
		fmt.Println("denied")
		return nil
	}
	if err != nil {
		return err
	}
	if o.UID != 0 {
		fmt.Println("rights", c.Rights())
		return nil
	}
	if _, err := c.Prefetch(ctx, client.Chain(chain(1, 4)), client.PrefetchOptions{}); err != nil {
		return err
	}
	f, err := c.Reserve(ctx, client.Chain(chain(2, 4)), client.ReserveOptions{Size: size})
	if err != nil {
		return err
	}
	for i := range f.Len() {
		f.Bytes(i)[0] = 1
	}
	fmt.Println("holding")
	stdin := bufio.NewReader(os.Stdin)
	if o.Leave {
		if _, err := stdin.ReadString('\n'); err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
		fmt.Println("left")
	}
	_, err = io.Copy(io.Discard, stdin)
	return err
}

// child is a client in a process of its own.
type child struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

func start(t testing.TB, o order) *child {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.Command(os.Args[0])}
	// The race detector would sleep for a second before it exits.
	c.cmd.Env = append(os.Environ(), childVar+"="+string(text), "GORACE=atexit_sleep_ms=0")
	c.cmd.Stderr = t.Output()
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin, c.out = stdin, bufio.NewReader(stdout)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	return c
}

func (c *child) says(want string) {
	c.t.Helper()
	if got, err := c.out.ReadString('\n'); got != want+"\n" {
		c.t.Fatalf("the client said %q (%v), want %q", got, err, want)
	}
}

// kill ends the client with SIGKILL and reaps it.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// What a killed client held is free as soon as the kernel has closed its
// socket, direct fills as soon as it has ended.
func TestKilledClient(t *testing.T) {
	for _, direct := range []bool{false, true} {
		t.Run(fmt.Sprintf("direct %t", direct), func(t *testing.T) {
			r := newRig(t, options{sockets: true, Options: server.Options{Direct: direct}})
			r.store(chain(1, 4), 0, 4)
			c := start(t, order{Socket: r.socket, Direct: direct})
			c.says("holding")
			if r.leased() != 8*size {
				t.Fatalf("%d bytes are held", r.leased())
			}
			c.kill()
			r.until("it is free", func() bool { return r.leased() == 0 && r.arena.Stats().Blocks == 4 })
		})
	}
}

// BenchmarkKilledClient measures how long after a kill -9 what a client held is
// free again; that the kernel closes its socket is part of it.
//
//	go test ./internal/server -run - -bench KilledClient -benchtime 50x
func BenchmarkKilledClient(b *testing.B) {
	for _, direct := range []bool{false, true} {
		b.Run(fmt.Sprintf("direct %t", direct), func(b *testing.B) {
			r := newRig(b, options{sockets: true, Options: server.Options{Direct: direct}})
			r.store(chain(1, 4), 0, 4)
			var took []time.Duration
			for b.Loop() {
				c := start(b, order{Socket: r.socket, Direct: direct})
				c.says("holding")
				killed := time.Now()
				if err := c.cmd.Process.Kill(); err != nil {
					b.Fatal(err)
				}
				for r.leased() != 0 || r.arena.Stats().Blocks != 4 {
					time.Sleep(20 * time.Microsecond)
				}
				took = append(took, time.Since(killed))
				c.kill()
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2].Seconds()*1e3, "ms-p50")
			b.ReportMetric(took[len(took)-1].Seconds()*1e3, "ms-max")
		})
	}
}

// A client that has left but lives may still write to its direct fills: their
// blocks stay out of use, and charged, until its process has ended.
func TestQuarantine(t *testing.T) {
	r := newRig(t, options{Options: server.Options{Direct: true}})
	r.store(chain(1, 4), 0, 4)
	c := start(t, order{Socket: r.socket, Direct: true, Leave: true})
	c.says("holding")
	if _, err := io.WriteString(c.stdin, "\n"); err != nil {
		t.Fatal(err)
	}
	c.says("left")
	r.until("it has left", func() bool { return r.server.Stats().Connections == 0 })
	q, l := r.quarantine.Stats(), r.hot.Ledger().Stats()
	if q.Blocks != 4 || r.leased() != 4*size || l.Filling != 0 || l.Owners != 1 {
		t.Errorf("quarantine %+v, ledger %+v", q, l)
	}
	if n := r.arena.Stats().Blocks; n != 8 {
		t.Errorf("%d blocks", n)
	}
	r.must(put(t.Context(), r.dial(client.Options{}), chain(2, 4), 0, 4)) // the keys are free again
	c.kill()
	r.until("it is free", func() bool { return r.leased() == 0 && r.quarantine.Stats().Blocks == 0 })
}

// An abort, other than an expiry, is the client's word that it writes no more.
func TestDirectAbort(t *testing.T) {
	r := newRig(t, options{Options: server.Options{Direct: true, Settings: server.Settings{LeaseMaxAge: 200 * brief}}})
	c := r.dial(client.Options{Direct: true})
	f, err := c.Reserve(t.Context(), client.Chain(chain(1, 4)), client.ReserveOptions{Size: size})
	r.must(err)
	r.must(f.Abort(t.Context()))
	if r.arena.Stats().Blocks != 0 || r.quarantine.Stats().Blocks != 0 {
		t.Errorf("arena %+v, quarantine %+v", r.arena.Stats(), r.quarantine.Stats())
	}
}

func TestDirectExpiry(t *testing.T) {
	r := newRig(t, options{Options: server.Options{Direct: true, Settings: server.Settings{LeaseMaxAge: brief}}})
	c := r.dial(client.Options{Direct: true})
	_, err := c.Reserve(t.Context(), client.Chain(chain(1, 4)), client.ReserveOptions{Size: size})
	r.must(err)
	r.until("the fill is in quarantine", func() bool { return r.quarantine.Stats().Blocks == 4 })
	r.until("and charged", func() bool { return r.leased() == 4*size })
}

// The kernel says who is at the other end.
func TestForeignUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become somebody else")
	}
	const nobody, somebody = 65534, 12345
	dir, err := os.MkdirTemp("/tmp", "kv") // where everybody can come
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for name, tc := range map[string]struct {
		o    server.Settings
		want string
	}{
		"whoever comes":  {server.Settings{}, "rights 3"},
		"on the list":    {server.Settings{Access: access.New(access.Options{Allow: []uint32{nobody}})}, "rights 3"},
		"admin":          {server.Settings{Access: access.New(access.Options{Admins: []uint32{nobody}})}, "rights 7"},
		"somebody else":  {server.Settings{Access: access.New(access.Options{Allow: []uint32{somebody}})}, "denied"},
		"other's admins": {server.Settings{Access: access.New(access.Options{Allow: []uint32{somebody}, Admins: []uint32{somebody}})}, "denied"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, options{sockets: true, Options: server.Options{Settings: tc.o}})
			r.must(os.Chmod(dir, 0o755))
			r.must(os.Chmod(r.socket, 0o666))
			there := filepath.Join(dir, "s")
			r.must(os.Rename(r.socket, there))
			start(t, order{Socket: there, UID: nobody}).says(tc.want)
		})
	}
}
