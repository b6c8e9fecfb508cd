package daemon

import (
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/router/event"
	"github.com/kvstored/kvstored/router/index"
	"github.com/kvstored/kvstored/router/zmtp"
)

// The events of a daemon, as a router gets them: a snapshot on one socket, and what
// comes then on the other.
func TestEventsOverZeroMQ(t *testing.T) {
	cfg := smallConfig(t)
	dir := filepath.Dir(cfg.Listen.Socket)
	cfg.Events.Enabled, cfg.Events.Topic, cfg.Events.Tokens = true, "kv", true
	cfg.Admin.Listen = "127.0.0.1:0"
	cfg.Events.Publish, cfg.Events.Replay = filepath.Join(dir, "pub"), filepath.Join(dir, "replay")
	d := serve(t, cfg)
	c := dial(t, d)
	put := func(tokens ...uint32) {
		if _, err := c.Put(t.Context(), client.Tokens(tokens), 0, [][]byte{[]byte("payload")}); err != nil {
			t.Fatal(err)
		}
	}
	open := func(kind, path string) *zmtp.Client {
		z, err := zmtp.Dial(t.Context(), kind, "ipc://"+path, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = z.Close() })
		return z
	}
	batch := func(z *zmtp.Client, frame int) []event.Event {
		frames, err := z.Receive(time.Now().Add(time.Minute))
		if err != nil || len(frames) != 3 {
			t.Fatalf("%q, %v", frames, err)
		}
		if len(frames[2]) == 0 { // the end of a replay
			return nil
		}
		b, err := event.Decode(frames[frame], event.VLLM, event.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return b.Events
	}

	first := []uint32{1, 2, 3, 4}
	put(first...)
	replay := open("DEALER", cfg.Events.Replay)
	if err := replay.Send(nil, make([]byte, 8), []byte("snapshot")); err != nil {
		t.Fatal(err)
	}
	var there []event.Event
	for list := batch(replay, 2); list != nil; list = batch(replay, 2) {
		there = append(there, list...)
	}
	if len(there) < 2 || there[0].Kind != event.Cleared || there[1].Kind != event.Stored || there[1].Medium != index.CPU || !slices.Equal(there[1].Tokens, first) {
		t.Fatalf("a snapshot: %+v", there)
	}

	sub := open("SUB", cfg.Events.Publish)
	if err := sub.Subscribe("kv"); err != nil {
		t.Fatal(err)
	}
	for d.stats().Events.Subscribers == 0 {
		time.Sleep(time.Millisecond)
	}
	for _, want := range []string{"kvstored_events_subscribers 1", "kvstored_events_restarts_total 0", `kvstored_events_messages_total{result="missed"} 0`} {
		if !page(t, d, "/metrics", http.StatusOK, want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
	got := make(chan []event.Event, 1)
	go func() { got <- batch(sub, 2) }()
	for n := uint32(10); ; n++ { // until its subscription is there
		put(n, 2, 3, 4)
		select {
		case list := <-got:
			if list[0].Kind != event.Stored || len(list[0].Tokens) != 4*len(list[0].Hashes) {
				t.Errorf("%+v", list)
			}
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}
