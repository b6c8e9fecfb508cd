package bridge

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/test/logtest"
	"github.com/kvstored/kvstored/key"
)

// fake is a daemon with one space.
type fake struct {
	epoch uint64
	down  atomic.Bool
	there []client.Event
	asked []client.EventsOptions
	push  chan *client.EventBatch
}

var (
	errDown = errors.New("the daemon is down")
	space   = key.SpaceID{1}
	spaces  = map[key.SpaceID]key.Space{space: {Model: "m", ChunkTokens: 4}}
)

func (f *fake) dial(context.Context) (Daemon, error) {
	if f.down.Load() {
		return nil, errDown
	}
	return f, nil
}

func (f *fake) Close() error { return nil }

// Events says all that is there, and then what is pushed; nil ends the connection.
func (f *fake) Events(ctx context.Context, o client.EventsOptions, do func(*client.EventBatch) error) error {
	f.asked = append(f.asked, o)
	if o.Snapshot {
		if err := do(&client.EventBatch{Epoch: f.epoch, Seq: 7, Snapshot: true, Spaces: spaces, Events: f.there}); err != nil {
			return err
		}
		if err := do(&client.EventBatch{Epoch: f.epoch, Seq: 7, Snapshot: true, Complete: true}); err != nil {
			return err
		}
	} else if o.Epoch != f.epoch {
		if err := do(&client.EventBatch{Epoch: f.epoch, Seq: 7, Lost: true}); err != nil {
			return err
		}
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b := <-f.push:
			if b == nil {
				return errDown
			}
			if err := do(b); err != nil {
				return err
			}
		}
	}
}

func stored(n byte) client.Event {
	return client.Event{Kind: client.EventStored, Tier: client.Disk, Space: space, Hash: key.Hash{n}}
}

// run runs a bridge to a fake daemon until the bubble ends.
func run(t *testing.T, f *fake) *Bridge {
	f.push = make(chan *client.EventBatch)
	b := New(Options{Dial: f.dial, Log: zerolog.Nop()})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = b.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	settle()
	return b
}

// settle lets pauses pass and batches be numbered.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// told are the changes in the log: the first byte of each hash, 0 where all is cleared.
func (b *Bridge) changes() (all []byte) {
	batches, _, _, _ := b.log.Read(nil, 0, 100)
	for i := range batches {
		for _, c := range batches[i].Changes {
			all = append(all, c.Key.Hash[0])
		}
	}
	return all
}

func want(t *testing.T, b *Bridge, what string, all ...byte) {
	t.Helper()
	settle()
	if got := b.changes(); !slices.Equal(got, all) {
		t.Errorf("%s: %v is told, want %v", what, got, all)
	}
}

// A daemon that begins anew is told anew, under numbers that follow; one that was not
// heard for a moment goes on.
func TestFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{epoch: 1, there: []client.Event{stored(1)}}
		b := run(t, f)
		want(t, b, "a snapshot", 0, 1)
		f.push <- &client.EventBatch{Epoch: 1, Seq: 7, Events: []client.Event{stored(2)}}
		want(t, b, "a batch", 0, 1, 2)
		f.push <- nil
		settle()
		f.push <- &client.EventBatch{Epoch: 1, Seq: 8, Events: []client.Event{stored(3)}}
		want(t, b, "another connection", 0, 1, 2, 3)
		if last := f.asked[len(f.asked)-1]; last != (client.EventsOptions{Epoch: 1, From: 8}) {
			t.Errorf("it was asked for by %+v", last)
		}
		f.epoch, f.there = 2, []client.Event{stored(9)}
		f.push <- nil
		want(t, b, "another life", 0, 1, 2, 3, 0, 9)
		f.push <- &client.EventBatch{Epoch: 2, Seq: 50, Lost: true}
		want(t, b, "lost batches", 0, 1, 2, 3, 0, 9, 0, 9)
		batches, next, lost, _ := b.log.Read(nil, 0, 100)
		if lost || next != uint64(len(batches)) {
			t.Errorf("%d batches, then number %d", len(batches), next)
		}
	})
}

// The log has a line for a daemon that is not there, one for its end, and none for the end
// of the bridge.
func TestSaysOnceThatNoneIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, log := &fake{epoch: 1, push: make(chan *client.EventBatch)}, new(logtest.Book)
		f.down.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		b := New(Options{Dial: f.dial, Log: zerolog.New(log).Level(zerolog.WarnLevel)})
		ended := make(chan error)
		go func() { ended <- b.Run(ctx) }()
		says := func(what string, lines int) {
			t.Helper()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got := strings.Count(log.String(), "the daemon is not heard"); got != lines {
				t.Errorf("%s: %d lines, want %d:\n%s", what, got, lines, log)
			}
		}
		says("none there", 1)
		f.down.Store(false)
		says("one there", 1)
		f.down.Store(true)
		f.push <- nil
		says("it has gone", 2)
		f.down.Store(false)
		says("another there", 2)
		cancel()
		<-ended
		says("the bridge has ended", 2)
	})
}

// What a daemon has counts for a while after it has gone, and is cleared once.
func TestGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{epoch: 1, there: []client.Event{stored(1)}}
		b := run(t, f)
		ready := func(code int) {
			t.Helper()
			w := httptest.NewRecorder()
			b.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
			if w.Code != code {
				t.Errorf("/readyz: %d, want %d", w.Code, code)
			}
		}
		ready(http.StatusOK)
		f.down.Store(true)
		f.push <- nil
		time.Sleep(25 * time.Second)
		want(t, b, "within the grace", 0, 1)
		ready(http.StatusServiceUnavailable)
		if err := b.contents(t.Context(), func([]index.Change) error { return nil }); !errors.Is(err, errDown) {
			t.Errorf("a snapshot of a daemon that is down: %v", err)
		}
		time.Sleep(time.Minute)
		want(t, b, "after it", 0, 1, 0)
		time.Sleep(time.Hour)
		want(t, b, "much later", 0, 1, 0)
		f.down.Store(false)
		time.Sleep(lastPause)
		want(t, b, "it is back", 0, 1, 0, 0, 1)
	})
}

// Nothing of a flood is lost.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{epoch: 1}
		b := run(t, f)
		many := slices.Repeat([]client.Event{stored(1)}, 200_000)
		f.push <- &client.EventBatch{Epoch: 1, Seq: 7, Events: many}
		settle()
		if st := b.log.Stats(); st.Noted != 200_001 {
			t.Errorf("%+v", st)
		}
		w := httptest.NewRecorder()
		b.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		for _, line := range []string{"kvstored_bridge_connected 1", "kvstored_bridge_changes_total 200001", "kvstored_bridge_snapshots_total 1", `kvstored_bridge_messages_total{result="missed"} 0`} {
			if !strings.Contains(w.Body.String(), line) {
				t.Errorf("/metrics has no %s", line)
			}
		}
	})
}

// A snapshot has all that the daemon has, and ends where it is complete.
func TestContents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{epoch: 1, there: []client.Event{stored(1), stored(2), {Kind: client.EventRemoved, Space: space, Hash: key.Hash{3}}}}
		b := New(Options{Dial: f.dial, Log: zerolog.Nop()})
		var got []index.Change
		if err := b.contents(t.Context(), func(list []index.Change) error { got = append(got, list...); return nil }); err != nil {
			t.Fatal(err)
		}
		if len(got) != 3 || got[0].Place != 1 || got[1].Key != (key.Key{Space: space, Hash: key.Hash{2}}) || got[2].Kind != index.Removed {
			t.Errorf("%+v", got)
		}
		if s, known := b.space(space); !known || s.Model != "m" {
			t.Errorf("the space is %+v, %v", s, known)
		}
	})
}
