package daemon

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/keep"
	"github.com/kvstored/kvstored/internal/socket"
)

// keepingUntil runs a keeper until ctx ends.
func keepingUntil(t *testing.T, ctx context.Context, cfg *config.Config) (ended chan error) {
	t.Helper()
	l, err := socket.Listen(cfg.KeeperSocket(), 0o600, "")
	if err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() { ended <- (&keep.Server{Log: zerolog.Nop()}).Serve(ctx, l) }()
	return ended
}

// keeping runs a keeper for daemons with a configuration.
func keeping(t *testing.T, cfg *config.Config) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := keepingUntil(t, ctx, cfg)
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A keeper that is started again has the memory of the daemon that still runs.
func TestKeeperComesBack(t *testing.T) {
	cfg := handedConfig(t)
	cfg.Disk.Capacity = 0
	ctx, stop := context.WithCancel(context.Background())
	first := keepingUntil(t, ctx, &cfg)
	d := live(t, cfg, false)
	c := connect(t, &cfg)
	store(t, c, 1, 5)
	stop()
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(cfg.KeeperSocket()); err != nil {
		t.Fatal(err)
	}
	keeping(t, &cfg)
	const given = "was given to its keeper"
	for deadline := time.Now().Add(time.Minute); strings.Count(d.log.String(), given) < 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the new keeper has nothing\n%s", d.log)
		}
	}
	c.Close()
	d.end(t)
	d = live(t, cfg, false)
	wants(t, connect(t, &cfg), 1, 5)
	d.end(t)
}

// there is how many chunks of a prompt are there.
func there(t *testing.T, c *client.Client, n int) int {
	t.Helper()
	job, err := c.Prefetch(t.Context(), client.Tokens(prompt(n, 5)), client.PrefetchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := job.Wait(t.Context(), client.All)
	if err != nil {
		t.Fatal(err)
	}
	return int(st.Ready.Chunks)
}

// The next daemon has what the one before has left with the keeper. What cannot be used
// leaves DRAM empty, the log says why, and the daemon serves.
func TestKept(t *testing.T) {
	cfg := handedConfig(t)
	cfg.Disk.Capacity = 0
	keeping(t, &cfg)
	first := live(t, cfg, false)
	c := connect(t, &cfg)
	store(t, c, 1, 5)
	c.Close()
	first.end(t)

	again := live(t, cfg, false)
	c = connect(t, &cfg)
	wants(t, c, 1, 5)
	store(t, c, 2, 5)
	c.Close()
	next := live(t, cfg, true) // a hand-over in between: the keeper has the successor's
	again.await(t)
	c = connect(t, &cfg)
	store(t, c, 3, 5)
	c.Close()
	next.end(t)

	for i, change := range []func(*config.Config){
		func(*config.Config) {},
		func(c *config.Config) { c.CPU.Capacity *= 2 },
		func(c *config.Config) { c.Arena.Puts = config.PutsDirect },
		func(c *config.Config) { c.Upgrade.HandOver = false },
	} {
		other := cfg
		change(&other)
		d := live(t, other, false)
		c = connect(t, &other)
		have := 0
		for n := range 3 {
			have += there(t, c, n+1)
		}
		switch {
		case i == 0 && have != 15:
			t.Errorf("%d of 15 chunks are there", have)
		case i > 0 && have > 0:
			t.Errorf("change %d: %d chunks are there", i, have)
		case (i == 1 || i == 2) && !strings.Contains(d.log.String(), "it is set aside"), i == 3 && !strings.Contains(d.log.String(), "would keep it"):
			t.Errorf("change %d: the log does not say why\n%s", i, d.log)
		}
		store(t, c, 10+i, 3)
		wants(t, c, 10+i, 3)
		c.Close()
		d.end(t)
	}
	if _, err := os.Stat(cfg.KeeperSocket()); err != nil {
		t.Error(err)
	}
}
