package daemon

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/router/event"
	"github.com/kvstored/kvstored/router/feed"
	"github.com/kvstored/kvstored/router/index"
)

// A routing index that follows a daemon, over ZeroMQ or on its socket, says of each
// prompt what the daemon says when it is asked: of what was there before, came and
// was deleted.
func TestIndexFollowsDaemon(t *testing.T) {
	t.Run("ZeroMQ", func(t *testing.T) {
		indexFollows(t, func(p *feed.Publisher, c *config.Config) func(context.Context) error {
			return (&feed.Subscriber{Publisher: p, Events: "ipc://" + c.Events.Publish, Replay: "ipc://" + c.Events.Replay, Snapshots: true, Log: zerolog.Nop()}).Run
		})
	})
	t.Run("socket", func(t *testing.T) {
		indexFollows(t, func(p *feed.Publisher, c *config.Config) func(context.Context) error {
			return (&feed.Stream{Publisher: p, Socket: c.Listen.Socket, Log: zerolog.Nop()}).Run
		})
	})
}

func indexFollows(t *testing.T, follow func(*feed.Publisher, *config.Config) func(context.Context) error) {
	cfg := smallConfig(t)
	dir := filepath.Dir(cfg.Listen.Socket)
	cfg.Events.Enabled = true
	cfg.Events.Publish, cfg.Events.Replay = filepath.Join(dir, "pub"), filepath.Join(dir, "replay")
	d := serve(t, cfg)
	c := dial(t, d)
	size := c.Space().ChunkTokens()
	promptTokens := func(n uint32) (tokens []uint32) { // three chunks; those of one third of the prompts begin alike
		for chunk := range uint32(3) {
			for i := range uint32(size) {
				tokens = append(tokens, i+1000*chunk+10_000*(n*min(chunk, 1)+n%3))
			}
		}
		return tokens
	}
	prompt := func(n uint32) client.Prompt { return client.Tokens(promptTokens(n)) }
	put := func(n uint32) {
		payload := []byte("payload")
		if _, err := c.Put(t.Context(), prompt(n), 0, [][]byte{payload, payload, payload}); err != nil {
			t.Fatal(err)
		}
	}
	const prompts = 30
	for n := range uint32(prompts / 2) {
		put(n)
	}

	x, err := index.New(index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := feed.Worker{Worker: index.Worker{ID: "w"}, Dialect: event.VLLM, Chunks: true}
	if err := x.Register(w.Worker, index.WorkerOptions{}); err != nil {
		t.Fatal(err)
	}
	m := &feed.Model{Name: testSpace.Model, ChunkTokens: size, ChunkHash: testSpace.Method}
	p := feed.New(feed.Options{Index: x}, w, m)
	run := follow(p, &cfg)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = run(ctx) })
	defer running.Wait()
	defer stop()

	known := func(n uint32) int {
		shard, err := x.Shard(m.Chunks("", ""))
		if err != nil {
			return 0
		}
		hashes, err := m.ChunkHashes("", promptTokens(n))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range shard.Find(nil, hashes, index.FindOptions{}) {
			return int(found.Blocks[index.Shared])
		}
		return 0
	}
	same := func(what string) {
		t.Helper()
		for n := range uint32(prompts) {
			match, err := c.Lookup(t.Context(), prompt(n), 0)
			if err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(time.Minute); known(n) != int(match.Total.Chunks); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					stats, err := p.Stats()
					t.Fatalf("%s: prompt %d: the index knows %d chunks, the daemon %d; %+v, %v", what, n, known(n), match.Total.Chunks, stats, err)
				}
			}
		}
	}
	same("a snapshot")
	for n := uint32(prompts / 2); n < prompts; n++ {
		put(n)
	}
	same("stored")
	for n := uint32(0); n < prompts; n += 4 {
		if _, err := c.DeletePrompt(t.Context(), prompt(n)); err != nil {
			t.Fatal(err)
		}
	}
	same("deleted")
}
