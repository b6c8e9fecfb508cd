package feed

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/router/event"
	"github.com/kvstored/kvstored/router/index"
)

// Stream brings what a daemon tells on its own socket to a publisher of chunks, and
// connects again for as long as it runs. The daemon tells of the spaces that this
// process's user may read. Of those of the publisher's model the first rank
// counts, and of several that differ in revision or layout the first that is told.
type Stream struct {
	Publisher *Publisher
	Socket    string // path
	Log       zerolog.Logger

	epoch  uint64
	next   uint64
	known  bool                     // epoch and next are
	spaces map[key.SpaceID]*counted // told since the last connection
	room   []event.Event
}

// counted is a space that counts; nil in a map: one that does not.
type counted struct {
	id, lora string
	tokens   int
}

var errLost = errors.New("the daemon has let go of batches")

// Run follows the daemon until ctx ends.
func (s *Stream) Run(ctx context.Context) error {
	s.Publisher.canAsk()
	return again(ctx, s.Publisher, s.Log, s.Socket, s.session)
}

// session is one connection.
func (s *Stream) session(ctx context.Context) error {
	c, err := client.Dial(ctx, s.Socket, client.Options{Name: "kvstored-router", Inline: true})
	if err != nil {
		return err
	}
	defer c.Close()
	s.Publisher.Connected()
	s.spaces = make(map[key.SpaceID]*counted)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.Publisher.endIfSilent(ctx, c)
	o := client.EventsOptions{Epoch: s.epoch, From: s.next}
	if _, begun := s.Publisher.Next(); !begun || !s.known {
		s.known = false
		o = client.EventsOptions{From: client.EventsNow, Snapshot: true}
		s.Publisher.Reset()
	}
	return c.Events(ctx, o, func(b *client.EventBatch) error { return s.batch(ctx, b) })
}

// batch takes in a batch or a part of a snapshot.
func (s *Stream) batch(ctx context.Context, b *client.EventBatch) error {
	if b.Lost {
		s.known = false
		return errLost
	}
	for id, space := range b.Spaces {
		s.spaces[id] = s.counted(id, space)
	}
	err := s.Publisher.Told(s.events(b.Events))
	if errors.Is(err, ErrIgnore) || errors.Is(err, ErrFlood) {
		s.known = false
		return err
	}
	s.epoch, s.next = b.Epoch, b.Seq
	if !b.Snapshot {
		s.next++
	}
	s.known = !b.Snapshot || b.Complete
	if s.known {
		s.Publisher.Expect(s.next)
	}
	if err != nil {
		s.Log.Debug().Err(err).Msg("events of a daemon were refused")
	}
	return s.Publisher.wait(ctx)
}

// counted says what of a space is needed, nil if it does not count.
func (s *Stream) counted(id key.SpaceID, space key.Space) *counted {
	if space.Model != s.Publisher.model.Name || space.Worker != 0 || space.Group != "" {
		return nil
	}
	return &counted{id: id.String(), lora: space.LoRA, tokens: space.ChunkTokens}
}

// events are the changes of a batch in spaces that count.
func (s *Stream) events(all []client.Event) []event.Event {
	s.room = s.room[:0]
	hashes := make([]uint64, len(all)) // of those that wait for their parents too
	for i := range all {
		e := &all[i]
		if e.Kind == client.EventCleared {
			s.room = append(s.room, event.Event{Kind: event.Cleared})
			continue
		}
		c := s.spaces[e.Space]
		if c == nil {
			continue
		}
		hashes[i] = event.ShortHash(e.Hash[:])
		one := event.Event{Kind: event.Removed, Hashes: hashes[i : i+1 : i+1], Space: c.id, LoRA: c.lora, Medium: mediumOf(e.Tier)}
		if e.Kind == client.EventStored {
			one.Kind, one.ChunkTokens = event.Stored, int(e.Tokens)
			if e.Tokens == 0 {
				one.ChunkTokens = c.tokens
			}
			if e.Parent != (key.Hash{}) {
				one.Parent = index.After(event.ShortHash(e.Parent[:]))
			}
		}
		s.room = append(s.room, one)
	}
	return s.room
}

// mediumOf is where a tier of the daemon is.
func mediumOf(t client.Tiers) index.Medium {
	switch t {
	case client.CPU:
		return index.CPU
	case client.Disk:
		return index.Disk
	}
	return index.Shared
}

// again runs sessions with pauses between them until ctx ends.
func again(ctx context.Context, p *Publisher, log zerolog.Logger, endpoint string, session func(context.Context) error) error {
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		begun := time.Now()
		err := session(ctx)
		level := zerolog.DebugLevel
		if p.Lost() {
			level = zerolog.WarnLevel
		}
		if ctx.Err() != nil {
			return nil
		}
		log.WithLevel(level).Err(err).Str("endpoint", endpoint).Msg("a publisher of events is not there")
		if time.Since(begun) > lastBackoff || errors.Is(err, errLost) {
			backoff = firstBackoff
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(backoff):
		}
	}
}
