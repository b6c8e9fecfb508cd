package router_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/e2e/need"
	"github.com/kvstored/kvstored/router/zmtp"
)

// peer runs testdata/peer.py until the test ends.
type peer struct {
	t     *testing.T
	lines *bufio.Scanner
	stdin io.WriteCloser
	cmd   *exec.Cmd
}

func startPeer(t *testing.T, mode, endpoint string, n int) *peer {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), need.Python(t, "zmq"), "testdata/peer.py", mode, endpoint, fmt.Sprint(n))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &peer{t, bufio.NewScanner(out), in, cmd}
}

func (p *peer) line() string {
	p.t.Helper()
	if !p.lines.Scan() {
		p.t.Fatalf("the peer has ended: %v", p.lines.Err())
	}
	return p.lines.Text()
}

// listen is a listener for a test, and its endpoint.
func listen(t *testing.T, network string) (net.Listener, string) {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	if network == "unix" {
		return l, "ipc://" + addr
	}
	return l, "tcp://" + l.Addr().String()
}

// publish serves a publisher until the test ends.
func publish(t *testing.T, queue int, network string) (*zmtp.Publisher, string) {
	l, endpoint := listen(t, network)
	p := zmtp.NewPublisher(queue, 100, zerolog.Nop())
	during(t, func(ctx context.Context) error { return p.Serve(ctx, l) })
	return p, endpoint
}

// during runs do until the test ends.
func during(t *testing.T, do func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := do(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

func seq(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// until repeats do until ok says that it is so.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come")
		}
	}
}

func TestSubscribersOfLibzmq(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		p, endpoint := publish(t, 100, network)
		lengths := []int{0, 1, 255, 256, 1 << 20}
		const tries = 3
		sub := startPeer(t, "sub", endpoint, tries*len(lengths))
		until(t, func() bool { // its first subscription was another
			before := p.Stats().Sent
			p.Publish([]byte("kv"), seq(0), nil)
			return p.Stats().Sent > before
		})
		for i := range tries*len(lengths) - 1 {
			p.Publish([]byte("other"), seq(99), nil)
			p.Publish([]byte("kv@model"), seq(uint64(i)), make([]byte, lengths[i%len(lengths)]))
		}
		if got := sub.line(); got != "kv 0 0" {
			t.Fatal(got)
		}
		for i := range tries*len(lengths) - 1 {
			if got, want := sub.line(), fmt.Sprint("kv@model ", i, " ", lengths[i%len(lengths)]); got != want {
				t.Fatalf("%s: %s, want %s", network, got, want)
			}
		}
		until(t, func() bool { return p.Stats().Subscribers == 0 })
	}
}

// Subscribers that come and go, and one that reads nothing, take nothing from
// another.
func TestSoakOfLibzmq(t *testing.T) {
	const messages = 8_000
	p, endpoint := publish(t, 1000, "tcp")
	slow := startPeer(t, "slow", endpoint, 0)
	churn := startPeer(t, "churn", endpoint, 10)
	good := startPeer(t, "sub", endpoint, messages)
	until(t, func() bool { // all are there
		p.Publish([]byte("warm"), seq(0), nil)
		return p.Stats().Subscribers >= 2
	})
	if got := slow.line(); got != "connected" {
		t.Fatal(got)
	}
	read := make(chan string, messages)
	go func() {
		defer close(read)
		for good.lines.Scan() {
			read <- good.lines.Text()
		}
	}()
	until(t, func() bool {
		p.Publish([]byte("kv"), seq(0), nil)
		select {
		case <-read:
			return true
		default:
			return false
		}
	})
	payload := make([]byte, 4096)
	for i, seen := uint64(1), uint64(0); i < messages; i++ {
		p.Publish([]byte("kv"), seq(i), payload)
		for i%400 == 0 && seen < i { // its queue is never full, so it misses nothing
			line, want := <-read, fmt.Sprint("kv ", seen+1, " 4096")
			if line == "kv 0 0" {
				continue
			}
			if line != want {
				t.Fatalf("%q, want %q", line, want)
			}
			seen++
		}
	}
	go func() { // the ones that come still want messages
		for t.Context().Err() == nil {
			p.Publish([]byte("warm"), seq(0), nil)
			time.Sleep(time.Millisecond)
		}
	}()
	if got := churn.line(); got != "done" {
		t.Error(got)
	}
	if p.Stats().Dropped == 0 {
		t.Error("a subscriber that reads nothing missed nothing")
	}
	_ = slow.stdin.Close()
	_ = good.cmd.Process.Kill()
	until(t, func() bool { return p.Stats().Subscribers == 0 })
}

// numbers answers with the numbers from the one asked for to 4, as vLLM does.
func numbers(_ context.Context, request [][]byte, send func(...[]byte) error) error {
	from := binary.BigEndian.Uint64(request[0])
	for i := from; i < 5; i++ {
		if err := send(seq(i), []byte("batch")); err != nil {
			return err
		}
	}
	return send(seq(1<<64-1), nil)
}

func TestReplaysForLibzmq(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		l, endpoint := listen(t, network)
		r := &zmtp.Replier{Answer: numbers, Connections: 10, Log: zerolog.Nop()}
		during(t, func(ctx context.Context) error { return r.Serve(ctx, l) })
		dealer := startPeer(t, "dealer", endpoint, 3)
		for range 2 {
			for _, want := range []string{"3 batch", "4 batch", "-1 "} {
				if got := dealer.line(); got != want {
					t.Fatalf("%q, want %q", got, want)
				}
			}
		}
		if got := startPeer(t, "req", endpoint, 7).line(); got != "8 0" {
			t.Fatal(got)
		}
	}
}

func TestPublisherOfLibzmq(t *testing.T) {
	l, endpoint := listen(t, "tcp")
	_ = l.Close() // the port is free now
	pub := startPeer(t, "pub", endpoint, 100)
	pub.line()
	c, err := zmtp.Dial(t.Context(), "SUB", endpoint, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Subscribe("kv@"); err != nil {
		t.Fatal(err)
	}
	if got := pub.line(); got != `b'\x01kv@'` {
		t.Fatal(got)
	}
	for i := range uint64(100) {
		frames, err := c.Receive(time.Now().Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if len(frames) != 3 || string(frames[0]) != "kv@1" || binary.BigEndian.Uint64(frames[1]) != i || len(frames[2]) != int(i)*37 {
			t.Fatalf("message %d: %q", i, frames)
		}
	}
	if _, err := c.Receive(time.Now().Add(10 * time.Second)); err == nil {
		t.Error("a publisher that has ended sends on")
	}
}

func TestRouterOfLibzmq(t *testing.T) {
	endpoint := "ipc://" + filepath.Join(t.TempDir(), "s")
	startPeer(t, "router", endpoint, 4).line()
	c, err := zmtp.Dial(t.Context(), "DEALER", endpoint, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Send(nil, seq(2)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []uint64{2, 3, 1<<64 - 1} {
		frames, err := c.Receive(time.Now().Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if len(frames) != 3 || len(frames[0]) != 0 || binary.BigEndian.Uint64(frames[1]) != want {
			t.Fatalf("%q, want %d", frames, want)
		}
	}
}
