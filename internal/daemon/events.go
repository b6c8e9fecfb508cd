package daemon

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/events"
	"github.com/kvstored/kvstored/router/publish"
)

// eventLog is the events of a daemon, and where they are published.
type eventLog struct {
	log       *events.Log    // nil: off
	tokens    *events.Tokens // nil: none are told
	publisher *publish.Publisher
	at        []endpoint // of publish, and of replay
}

// makeEpoch draws a number for this life of the daemon.
func makeEpoch() (uint64, error) {
	var epoch [8]byte
	if _, err := rand.Read(epoch[:]); err != nil {
		return 0, fmt.Errorf("epoch: %w", err)
	}
	return binary.LittleEndian.Uint64(epoch[:]), nil
}

// listen takes the addresses of events, before anything is served.
func (e *eventLog) listen(c *config.Config, from *inheritance) error {
	for _, a := range []struct{ key, addr string }{{"events.publish", c.Events.Publish}, {"events.replay", c.Events.Replay}} {
		if a.addr == "" {
			continue
		}
		at, err := from.listenAt(&c.Listen, a.key, a.addr)
		if err != nil {
			return err
		}
		e.at = append(e.at, at)
	}
	return nil
}

// make makes the log, before the store that notes in it.
func (e *eventLog) make(c *config.Config, epoch uint64) {
	if !c.Events.Enabled {
		return
	}
	e.log = events.New(epoch, events.Options{Batches: c.Events.Batches, Changes: c.Events.Batches * events.MaxBatch / 4})
	if c.Events.Tokens {
		e.tokens = events.NewTokens()
	}
}

// publish makes the publisher, once store and server are made.
func (e *eventLog) publish(d *Daemon) {
	if len(e.at) == 0 {
		return
	}
	o := publish.Options{
		Events: e.log, Topic: d.cfg.Events.Topic, Spaces: d.server.Describe, Contents: d.stack.Contents,
		Log: d.log.With().Str("component", "events").Logger(),
	}
	if e.tokens != nil {
		o.Tokens = e.tokens.Append
	}
	e.publisher = publish.New(o)
}

// run numbers events until ctx ends; workers have it.
func (e *eventLog) run(ctx context.Context, d *Daemon, workers *errgroup.Group) {
	if e.log != nil {
		workers.Go(func() error { return e.log.Run(ctx, d.stack.Announce) })
	}
}

// serve publishes until ctx ends.
func (e *eventLog) serve(ctx context.Context, g *errgroup.Group, log *zerolog.Logger) {
	if e.publisher == nil {
		return
	}
	g.Go(func() error { return e.publisher.Run(ctx) })
	g.Go(func() error { return e.publisher.Pub.Serve(ctx, e.at[0].Listener) })
	log.Info().Str("address", e.at[0].String()).Msg("publishing events")
	if len(e.at) > 1 {
		g.Go(func() error { return e.publisher.Replay.Serve(ctx, e.at[1].Listener) })
	}
}

// close gives the addresses back.
func (e *eventLog) close(fail func(string, error)) {
	for _, at := range e.at {
		fail("listener of events", at.Close())
		fail("socket of events", at.remove())
	}
}

// EventStats are the numbers of events.
type EventStats struct {
	events.Stats
	Subscribers int    `json:"subscribers"` // over ZeroMQ
	Sent        uint64 `json:"sent"`        // messages, each for each of them
	Missed      uint64 `json:"missed"`      // messages that a subscriber was too slow for
}

func (e *eventLog) stats(out *Stats) {
	if e.log == nil {
		return
	}
	out.Events = &EventStats{Stats: e.log.Stats()}
	if e.publisher != nil {
		st := e.publisher.Pub.Stats()
		out.Events.Subscribers, out.Events.Sent, out.Events.Missed = st.Subscribers, st.Sent, st.Dropped
	}
}
