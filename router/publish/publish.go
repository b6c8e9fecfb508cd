package publish

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/router/zmtp"
)

const (
	// queue is the messages that wait for one subscriber: some seconds of a daemon
	// at full speed, at 64 KiB at most each.
	queue = 256
	// connections is the subscribers, and the clients of replays.
	connections = 64
	// replayed is how many batches are read from the log at once.
	replayed = 16
)

// end is the number that ends a replay.
const end = math.MaxUint64

// Options of a Publisher.
type Options struct {
	Events *index.Log
	Topic  string
	Spaces Spaces
	// Contents calls visit with all that is there.
	Contents func(ctx context.Context, visit func([]index.Change) error) error
	Log      zerolog.Logger
}

// Publisher sends a log to subscribers, and parts of it again to those that ask.
type Publisher struct {
	o        Options
	Pub      *zmtp.Publisher
	Replay   *zmtp.Replier
	snapshot chan struct{} // capacity 1: held by the snapshot under way
}

// New makes a publisher. Its owner serves Pub and Replay, and runs it.
func New(o Options) *Publisher {
	p := &Publisher{o: o, Pub: zmtp.NewPublisher(queue, connections, o.Log), snapshot: make(chan struct{}, 1)}
	p.Replay = &zmtp.Replier{Answer: p.answer, Connections: connections, Log: o.Log}
	return p
}

// Run publishes each batch of the log until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	e := p.encoder()
	topic := []byte(p.o.Topic)
	var batches []index.Batch
	for at := p.o.Events.Next(); ; {
		var more <-chan struct{}
		batches, at, _, more = p.o.Events.Read(batches[:0], at, replayed)
		for i := range batches { // what the log has forgotten is a gap in the numbers
			if !p.Pub.Heard() {
				break
			}
			b := &batches[i]
			p.Pub.Publish(topic, number(b.Seq), bytes.Clone(e.batch(b.Time, b.Changes)))
		}
		if more == nil {
			continue
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *Publisher) encoder() *encoder { return &encoder{spaces: p.o.Spaces} }

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// answer answers one request for a replay or a snapshot.
func (p *Publisher) answer(ctx context.Context, request [][]byte, send func(...[]byte) error) error {
	if len(request) == 0 || len(request[0]) != 8 {
		return fmt.Errorf("replay: %d frames; send the number of the first batch, 8 bytes, big-endian", len(request))
	}
	var err error
	if len(request) > 1 && string(request[1]) == "snapshot" {
		err = p.sendSnapshot(ctx, send)
	} else {
		err = p.sendBatches(binary.BigEndian.Uint64(request[0]), send)
	}
	if err != nil {
		return err
	}
	return send(number(end), nil)
}

// sendBatches sends the kept batches from a number on. Forgotten ones are a gap.
func (p *Publisher) sendBatches(from uint64, send func(...[]byte) error) error {
	e := p.encoder()
	last := p.o.Events.Next()
	from = max(from, p.o.Events.Oldest())
	for from < last {
		batches, next, lost, _ := p.o.Events.Read(nil, from, replayed)
		if lost {
			return nil
		}
		for i := range batches {
			if err := send(number(batches[i].Seq), e.batch(batches[i].Time, batches[i].Changes)); err != nil {
				return err
			}
		}
		from = next
	}
	return nil
}

// sendSnapshot sends all that is there, after Cleared. One at a time is made: each
// takes the memory of a list of a space.
func (p *Publisher) sendSnapshot(ctx context.Context, send func(...[]byte) error) error {
	select {
	case p.snapshot <- struct{}{}:
		defer func() { <-p.snapshot }()
	case <-ctx.Done():
		return ctx.Err()
	}
	e := p.encoder()
	at, now := number(p.o.Events.Next()), time.Now() // later changes have this number or a higher one
	if err := send(at, e.batch(now, []index.Change{{Kind: index.Cleared}})); err != nil {
		return err
	}
	return p.o.Contents(ctx, func(list []index.Change) error { return send(at, e.batch(now, list)) })
}
