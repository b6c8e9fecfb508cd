package feed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/router/zmtp"
)

const (
	maxMessage   = 64 << 20 // bytes; the decoder has the same bound
	maxReplay    = 1 << 20  // messages
	replayWait   = 10 * time.Second
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
)

var errReplay = errors.New("malformed replay")

// Subscriber brings the batches of one endpoint to its publisher, and connects
// again for as long as it runs.
type Subscriber struct {
	Publisher *Publisher
	Events    string // endpoint: tcp://host:port or ipc:///path
	Replay    string // of replays; empty: what is missed is lost
	Topic     string // beginning of the topics that are wanted
	// Snapshots says that the endpoint of replays sends all that is there if it
	// is asked for that, as a kvstored does. Others are asked for all they keep.
	Snapshots bool
	Room      *zmtp.Room // for large messages of all subscribers; nil: there is always some
	Log       zerolog.Logger

	ignored bool // a batch was, since what there is was asked for
}

// Run subscribes until ctx ends.
func (s *Subscriber) Run(ctx context.Context) error {
	if s.Replay != "" {
		s.Publisher.canAsk()
	}
	return again(ctx, s.Publisher, s.Log, s.Events, s.session)
}

// session is one connection.
func (s *Subscriber) session(ctx context.Context) error {
	c, err := zmtp.Dial(ctx, "SUB", s.Events, maxMessage, s.Room)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if err := c.Subscribe(s.Topic); err != nil {
		return err
	}
	s.Publisher.Connected()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.Publisher.endIfSilent(ctx, c)
	if s.Replay != "" {
		s.catchUp(ctx)
	}
	for {
		if err := s.Publisher.wait(ctx); err != nil {
			return err
		}
		frames, err := c.Receive(time.Time{})
		if err != nil {
			return err
		}
		if len(frames) != 3 || len(frames[1]) != 8 {
			return fmt.Errorf("%s: a message of %d frames; a topic, a number of 8 bytes and a batch are meant", s.Events, len(frames))
		}
		s.live(ctx, binary.BigEndian.Uint64(frames[1]), frames[2])
	}
}

// live hands on a live batch, after the batches that were missed before it.
func (s *Subscriber) live(ctx context.Context, seq uint64, payload []byte) {
	v, err := s.Publisher.Live(seq, payload) // errors are counted
	switch {
	case errors.Is(err, ErrIgnore), err != nil && s.Publisher.isDeaf():
		s.ignored = true // what it said before is forgotten, too
		return
	case s.ignored && s.Replay != "":
		s.resync(ctx)
	case v == Applied, v == Duplicate:
		return
	case s.Replay != "" && v == Gap:
		s.Publisher.Rewind(seq, true)
		s.catchUp(ctx)
	case s.Replay != "":
		s.resync(ctx)
	}
	if next, begun := s.Publisher.Next(); begun && next > seq && s.Replay != "" {
		return // the replay had it
	}
	if v, _ := s.Publisher.Live(seq, payload); v == Gap || v == Restart { // that is lost
		s.Publisher.Reset()
		_, _ = s.Publisher.Live(seq, payload)
	}
}

// catchUp asks for the batches since the last one, and for that one, to see that
// the publisher still is the same; and for all where that fails.
func (s *Subscriber) catchUp(ctx context.Context) {
	next, begun := s.Publisher.Next()
	if begun {
		same := next == 0
		err := s.replay(ctx, max(next, 1)-1, nil, func(seq uint64, payload []byte) error {
			v, _ := s.Publisher.Replay(seq, payload)
			if v == Gap || v == Restart {
				return errReplay
			}
			same = same || seq+1 == next
			return nil
		})
		if err == nil && same {
			return
		}
		s.Log.Debug().Err(err).Str("endpoint", s.Replay).Msg("a replay has not all that was missed")
	}
	s.resync(ctx)
}

// resync forgets all and asks for all that is there, or is kept.
func (s *Subscriber) resync(ctx context.Context) {
	s.Publisher.Reset()
	s.ignored = false
	var what []byte
	take := func(seq uint64, payload []byte) error {
		_, _ = s.Publisher.Replay(seq, payload)
		return nil
	}
	at, parts := uint64(0), 0
	if s.Snapshots {
		what = []byte("snapshot")
		take = func(seq uint64, payload []byte) error {
			at, parts = seq, parts+1
			return s.Publisher.Snapshot(payload)
		}
	}
	err := s.replay(ctx, 0, what, take)
	switch {
	case err != nil:
		s.Log.Warn().Err(err).Str("endpoint", s.Replay).Msg("events were missed and cannot be asked for; what is known begins anew")
		s.Publisher.Reset()
	case parts > 0:
		s.Publisher.Expect(at)
	}
}

// replay asks for batches from a number on and calls visit with each.
func (s *Subscriber) replay(ctx context.Context, from uint64, what []byte, visit func(uint64, []byte) error) error {
	c, err := zmtp.Dial(ctx, "DEALER", s.Replay, maxMessage, s.Room)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	request := [][]byte{nil, binary.BigEndian.AppendUint64(nil, from)}
	if what != nil {
		request = append(request, what)
	}
	if err := c.Send(request...); err != nil {
		return err
	}
	for range maxReplay {
		frames, err := c.Receive(time.Now().Add(replayWait))
		if err != nil {
			return err
		}
		// Before these two come an empty frame, where the other side sends one, and vLLM's topic.
		if len(frames) > 2 && len(frames) <= 4 {
			frames = frames[len(frames)-2:]
		}
		if len(frames) != 2 || len(frames[0]) != 8 {
			return fmt.Errorf("%s: %w: %d frames; a number of 8 bytes and a batch are meant", s.Replay, errReplay, len(frames))
		}
		seq := binary.BigEndian.Uint64(frames[0])
		if seq == math.MaxUint64 {
			return nil
		}
		if err := visit(seq, frames[1]); err != nil {
			return err
		}
		if err := s.Publisher.wait(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: %w: more than %d batches", s.Replay, errReplay, maxReplay)
}
