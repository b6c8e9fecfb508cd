package kills

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/key"
)

// childVar makes the test binary a client in a process of its own; its value
// is an order.
const childVar = "KVSTORED_E2E_CLIENT"

type order struct {
	Socket string
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

// heldChunks is how many chunks a child reads, and how many it fills.
const heldChunks = 4

// heldChain is what a child reads, 1, or fills, 2.
func heldChain(number uint64) (*key.Chain, error) {
	b, err := key.NewBuilder(load.Space)
	if err != nil {
		return nil, err
	}
	chain, tokens := new(key.Chain), make([]uint32, heldChunks)
	for i := range tokens {
		tokens[i] = uint32(load.Space.ChunkTokens)
	}
	raw := make([]byte, 16*heldChunks)
	for i := range heldChunks {
		raw[16*i], raw[16*i+1] = byte(number), byte(i+1)
	}
	return chain, b.Hashes(chain, 16, raw, tokens, key.Options{})
}

// obey connects, holds a read lease and a fill, says so, and lives until told
// or killed.
func obey(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	ctx := context.Background()
	c, err := client.Dial(ctx, o.Socket, client.Options{Space: &load.Space})
	if err != nil {
		return err
	}
	stored, err := heldChain(1)
	if err != nil {
		return err
	}
	if _, err := c.Prefetch(ctx, client.Chain(stored), client.PrefetchOptions{}); err != nil {
		return err
	}
	fresh, err := heldChain(2)
	if err != nil {
		return err
	}
	f, err := c.Reserve(ctx, client.Chain(fresh), client.ReserveOptions{Size: 4096})
	if err != nil {
		return err
	}
	for i := range f.Len() {
		f.Bytes(i)[0] = 1
	}
	fmt.Println("holding")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// child is a client in a process of its own.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

func startChild(t *testing.T, o order) *child {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), childVar+"="+string(text))
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

// held is what clients hold of a daemon.
type held struct {
	Arena struct {
		Blocks int64 `json:"blocks"`
	} `json:"arena"`
	Server struct {
		Connections int64 `json:"connections"`
	} `json:"server"`
	Store struct {
		ClassBytes map[string]int64 `json:"class_bytes"`
	} `json:"store"`
}

// holdsOf is what clients hold now.
func holdsOf(t *testing.T, d *daemon.Daemon) (h held) {
	t.Helper()
	if err := d.AskInto(t.Context(), &h); err != nil {
		t.Fatal(err)
	}
	return h
}

// holdsUntil waits until what clients hold is as it should be.
func holdsUntil(t *testing.T, d *daemon.Daemon, what string, is func(held) bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		h := holdsOf(t, d)
		if is(h) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: never; %+v", what, h)
		}
	}
}

// holdingDaemon is a daemon without a disk that has the chain which children read.
func holdingDaemon(t *testing.T) *daemon.Daemon {
	t.Helper()
	d := daemon.Start(t, func(c *config.Config) { c.Disk.Capacity = 0 })
	chain, err := heldChain(1)
	if err == nil {
		err = load.Put(t.Context(), d.Dial(client.Options{Space: &load.Space}), chain)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// What a killed client held is free as soon as the kernel has closed its socket.
func TestKilledClient(t *testing.T) {
	d := holdingDaemon(t)
	c := startChild(t, order{Socket: d.Socket})
	c.says("holding")
	if h := holdsOf(t, d); h.Arena.Blocks != 2*heldChunks || h.Store.ClassBytes["lease"] == 0 {
		t.Fatalf("%+v is held", h)
	}
	c.kill()
	holdsUntil(t, d, "it is free", func(h held) bool { return h.Store.ClassBytes["lease"] == 0 && h.Arena.Blocks == heldChunks })
}
