package feed

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/router/feed/feedtest"
)

// A subscriber comes late, misses batches, loses its publisher and finds another
// life of it: it has what the publisher has each time.
func TestSubscriber(t *testing.T) {
	e := feedtest.NewEngine(t)
	e.Start()
	defer func() { e.End() }()
	e.Say(true, stored(nil, 1, 2)) // before there is a subscriber
	r := newRig(t, Options{Now: time.Now})
	s := &Subscriber{Publisher: r.p, Events: e.Events(), Replay: e.Replay(), Log: zerolog.Nop()}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer stop()
	comes := func(what string, depth int, hashes ...int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); r.depth(hashes...) != depth; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				stats, err := r.p.Stats()
				t.Fatalf("%s: %d of %v are known, want %d; %+v, %v", what, r.depth(hashes...), hashes, depth, stats, err)
			}
		}
	}
	comes("a late subscriber", 2, 1, 2)
	for e.Sent() == 0 { // its subscription is there
		e.Say(false, removed(99))
		time.Sleep(time.Millisecond)
	}
	e.Say(true, stored(2, 3))
	e.Say(true, stored(3, 4))
	e.Say(false, stored(4, 5))
	comes("lost batches", 5, 1, 2, 3, 4, 5)
	e.End()
	e.Start()
	e.Say(true, stored(nil, 1))
	comes("another life", 1, 1, 2, 3)
	stats, err := r.p.Stats()
	if stats.Gaps == 0 || stats.Forgotten == 0 || stats.Garbage != 0 || err != nil {
		t.Errorf("%+v, %v", stats, err)
	}
}
