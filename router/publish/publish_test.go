package publish_test

import (
	"context"
	"encoding/binary"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/router/event"
	routing "github.com/kvstored/kvstored/router/index"
	"github.com/kvstored/kvstored/router/publish"
	"github.com/kvstored/kvstored/router/zmtp"
)

// unnamed is a space that no client has opened.
var unnamed = key.SpaceID{1}

// rig is a log that is published on two sockets.
type rig struct {
	log         *index.Log
	there       []index.Change // what a snapshot has
	pub, replay string
}

// newRig publishes a log that begins with some changes, in one batch.
func newRig(t *testing.T, o index.LogOptions, first ...index.Change) *rig {
	t.Helper()
	r := &rig{log: index.NewLog(1, o)}
	for _, c := range first {
		r.log.Note(c)
	}
	p := publish.New(publish.Options{
		Events: r.log, Topic: "kv", Log: zerolog.Nop(),
		Spaces: func(id key.SpaceID) (key.Space, bool) {
			return key.Space{ChunkTokens: 2, LoRA: "adapter"}, id != unnamed
		},
		Contents: func(_ context.Context, visit func([]index.Change) error) error {
			return visit(r.there)
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	serve := func(name string, do func(context.Context, net.Listener) error) string {
		path := filepath.Join(t.TempDir(), name)
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { _ = do(ctx, l) })
		return "ipc://" + path
	}
	r.pub, r.replay = serve("pub", p.Pub.Serve), serve("replay", p.Replay.Serve)
	running.Go(func() { _ = r.log.Run(ctx) })
	running.Go(func() { _ = p.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return r
}

func dial(t *testing.T, kind, endpoint string) *zmtp.Client {
	t.Helper()
	c, err := zmtp.Dial(t.Context(), kind, endpoint, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// receive is the number of the next message and what its batch says.
func receive(t *testing.T, c *zmtp.Client) (uint64, []event.Event) {
	t.Helper()
	frames, err := c.Receive(time.Now().Add(time.Minute))
	if err != nil || len(frames) != 3 || len(frames[1]) != 8 {
		t.Fatalf("%q, %v", frames, err)
	}
	n := binary.BigEndian.Uint64(frames[1])
	if len(frames[2]) == 0 {
		return n, nil
	}
	b, err := event.Decode(frames[2], event.VLLM, event.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return n, b.Events
}

func stored(place, n, parent byte, tokens uint32) index.Change {
	c := index.Change{Place: place, Tokens: tokens, Key: key.Key{Hash: key.Hash{n, 15: 1}}}
	if parent > 0 {
		c.Parent = key.Hash{parent, 15: 1}
	}
	return c
}

var changes = []index.Change{
	stored(0, 1, 0, 2), stored(0, 2, 1, 2), stored(0, 3, 2, 1), // the last has another size
	stored(1, 1, 0, 0), stored(2, 1, 0, 2),
	{Kind: index.Removed, Key: key.Key{Hash: key.Hash{3, 15: 1}}},
	{Kind: index.Removed, Key: key.Key{Hash: key.Hash{2, 15: 1}}},
	{Kind: index.Removed, Place: 1, Key: key.Key{Hash: key.Hash{7: 9}}},                                                              // of 8 bytes
	{Kind: index.Removed, Key: key.Key{Space: unnamed, Hash: key.Hash{1, 15: 1}}}, {Key: key.Key{Space: unnamed, Hash: key.Hash{5}}}, // not told
	{Kind: index.Cleared},
}

func TestEventsAreVLLMs(t *testing.T) {
	r := newRig(t, index.LogOptions{}, changes...)
	c := dial(t, "DEALER", r.replay)
	var got []event.Event
	for last := false; !last; { // until the log has cut them
		got = nil
		if err := c.Send(nil, binary.BigEndian.AppendUint64(nil, 0)); err != nil {
			t.Fatal(err)
		}
		for {
			n, list := receive(t, c)
			if n == 1<<64-1 {
				break
			}
			got = append(got, list...)
		}
		last = len(got) > 0
	}
	want := []struct {
		kind   event.Kind
		hashes []uint64
		medium routing.Medium
		where  string
	}{
		{event.Stored, []uint64{1 << 56, 2 << 56}, routing.CPU, "LOCAL"}, {event.Stored, []uint64{3 << 56}, routing.CPU, "LOCAL"},
		{event.Stored, []uint64{1 << 56}, routing.Disk, "LOCAL"}, {event.Stored, []uint64{1 << 56}, routing.Shared, "REMOTE"},
		{event.Removed, []uint64{3 << 56, 2 << 56}, routing.CPU, "LOCAL"}, {event.Removed, []uint64{9}, routing.Disk, "LOCAL"},
		{event.Cleared, nil, routing.GPU, ""},
	}
	if len(got) != len(want) {
		t.Fatalf("%d events: %+v", len(got), got)
	}
	for i, w := range want {
		if e := got[i]; e.Kind != w.kind || !slices.Equal(e.Hashes, w.hashes) || e.Medium != w.medium || e.Locality != w.where || len(e.Tokens) > 0 {
			t.Errorf("event %d is %+v, want %+v", i, e, w)
		}
	}
	if e := got[0]; e.LoRA != "adapter" || e.Parent != routing.Root || !e.Placeholder() {
		t.Errorf("%+v", e)
	}
}

func TestSnapshot(t *testing.T) {
	r := newRig(t, index.LogOptions{})
	r.there = []index.Change{stored(0, 1, 0, 2), stored(0, 2, 1, 0), stored(0, 9, 0, 2)}
	c := dial(t, "DEALER", r.replay)
	if err := c.Send(nil, make([]byte, 8), []byte("snapshot")); err != nil {
		t.Fatal(err)
	}
	if n, list := receive(t, c); n != 0 || len(list) != 1 || list[0].Kind != event.Cleared {
		t.Fatalf("a snapshot begins with %d, %+v", n, list)
	}
	if _, list := receive(t, c); len(list) != 3 || list[0].ChunkTokens != 2 || !list[2].Placeholder() {
		t.Fatalf("%+v", list)
	}
	if n, _ := receive(t, c); n != 1<<64-1 {
		t.Fatalf("it ends with %d", n)
	}
}

func TestSubscribers(t *testing.T) {
	r := newRig(t, index.LogOptions{}) // which keeps what the publisher has not come to
	c := dial(t, "SUB", r.pub)
	if err := c.Subscribe("kv"); err != nil {
		t.Fatal(err)
	}
	got := make(chan uint64)
	go func() {
		defer close(got)
		for {
			frames, err := c.Receive(time.Time{})
			if err != nil {
				return
			}
			got <- binary.BigEndian.Uint64(frames[1])
		}
	}()
	for last, n := uint64(0), 0; n < 5; {
		r.log.Note(changes[0])
		select {
		case seq := <-got:
			if n > 0 && seq != last+1 {
				t.Fatalf("%d follows %d", seq, last)
			}
			last, n = seq, n+1
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// A request that makes no sense ends its connection, and no other.
func TestBadRequests(t *testing.T) {
	r := newRig(t, index.LogOptions{})
	good := dial(t, "DEALER", r.replay)
	for name, frames := range map[string][][]byte{
		"empty": {nil}, "nothing but empty frames": {nil, nil}, "a short number": {nil, []byte("1234")},
		"a long one": {nil, make([]byte, 9)}, "text": {[]byte("GET / HTTP/1.1")},
	} {
		c := dial(t, "DEALER", r.replay)
		if err := c.Send(frames...); err != nil {
			t.Fatal(err)
		}
		if frames, err := c.Receive(time.Now().Add(time.Minute)); err == nil {
			t.Errorf("%s was answered with %q", name, frames)
		}
	}
	if err := good.Send(nil, binary.BigEndian.AppendUint64(nil, 1<<63)); err != nil {
		t.Fatal(err)
	}
	if n, _ := receive(t, good); n != 1<<64-1 {
		t.Errorf("a number beyond the end was answered with %d", n)
	}
}
