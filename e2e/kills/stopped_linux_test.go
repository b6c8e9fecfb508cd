package kills

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/key"
)

// A daemon that is stopped (SIGSTOP) keeps neither a client's call nor a
// command for ever, and works on when it goes on.
func TestStoppedDaemon(t *testing.T) {
	t.Parallel()
	d := daemon.Start(t)
	space := key.Space{Model: "m", DType: "u8", World: 1, ChunkTokens: 4, Method: key.SHA256}
	prompt, ctx := client.Tokens([]uint32{1, 2, 3, 4}), t.Context()
	// The timeout is for the pause: what is answered before and after it may take a busy machine longer.
	patient, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	c, err := client.Dial(patient, d.Socket, client.Options{Space: &space, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	job, err := c.Prefetch(patient, prompt, client.PrefetchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	goOn := sync.OnceFunc(d.Pause())
	defer goOn()

	var calls sync.WaitGroup // at a time: each takes as long as its patience
	for _, args := range [][]string{{"stats"}, {"lookup", "--text", "a"}, {"put", "--text", "a"}, {"list", "spaces"}} {
		calls.Go(func() {
			code, _, says := daemon.Run(t, "payload", append(args, "--socket", d.Socket)...)
			if code != 4 || !strings.Contains(says, "does not answer") {
				t.Errorf("%s: exit code %d, %s", args, code, says)
			}
		})
	}
	for name, call := range map[string]func() error{
		"ping":     func() error { return c.Ping(ctx) },
		"lookup":   func() error { _, err := c.Lookup(ctx, prompt, 0); return err },
		"prefetch": func() error { _, err := c.Prefetch(ctx, prompt, client.PrefetchOptions{}); return err },
		"reserve":  func() error { _, err := c.Reserve(ctx, prompt, client.ReserveOptions{Size: 1}); return err },
		"put":      func() error { _, err := c.Put(ctx, prompt, 0, [][]byte{{1}}); return err },
		"get":      func() error { _, err := c.Get(ctx, prompt, client.GetOptions{}); return err },
		"release":  func() error { return job.Release(ctx) },
		"flush":    func() error { _, err := c.Flush(ctx, false); return err },
		"stats":    func() error { _, err := c.Stats(ctx); return err },
	} {
		calls.Go(func() {
			if err := call(); !errors.Is(err, client.ErrNoAnswer) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	calls.Wait()
	goOn()
	if err := c.Ping(patient); err != nil {
		t.Errorf("after it went on: %v", err)
	}
}
