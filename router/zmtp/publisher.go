package zmtp

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

const (
	// maxTopics and maxTopicBytes bound what a subscriber can cost.
	maxTopics     = 64
	maxTopicBytes = 256
	// stall is how long a peer may take no bytes in the middle of a message.
	stall = 30 * time.Second
)

// Publisher sends messages to all subscribers, a PUB socket. Each has a queue of
// its own; a message for which there is no room in it is dropped for that one.
type Publisher struct {
	queue, connections int
	log                zerolog.Logger

	mu struct {
		sync.Mutex
		subscribers map[*subscriber]bool
	}
	sent, dropped, refused atomic.Uint64
}

type subscriber struct {
	conn  *conn
	queue chan [][]byte
	mu    struct {
		sync.Mutex
		topics [][]byte
	}
}

// NewPublisher makes a publisher with queues of so many messages, for so many
// subscribers at most.
func NewPublisher(queue, connections int, log zerolog.Logger) *Publisher {
	p := &Publisher{queue: queue, connections: connections, log: log}
	p.mu.subscribers = make(map[*subscriber]bool)
	return p
}

// Publish hands a message to the subscribers of its topic, the first frame, and
// waits for none. The frames must not change afterwards.
func (p *Publisher) Publish(frames ...[]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.mu.subscribers {
		if !s.wants(frames[0]) {
			continue
		}
		select {
		case s.queue <- frames:
			p.sent.Add(1)
		default:
			p.dropped.Add(1)
		}
	}
}

// Heard reports whether there is a subscriber.
func (p *Publisher) Heard() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.subscribers) > 0
}

// Serve takes subscribers until ctx ends. It closes l.
func (p *Publisher) Serve(ctx context.Context, l net.Listener) error {
	greet := func(nc net.Conn) (*conn, error) { return handshake(nc, "PUB", maxCommand, "SUB", "XSUB") }
	return serve(ctx, l, p.connections, &p.refused, greet, p.serve, func(err error) {
		p.log.Debug().Err(err).Msg("a subscriber of events left")
	})
}

func (p *Publisher) serve(ctx context.Context, c *conn) (err error) {
	s := &subscriber{conn: c, queue: make(chan [][]byte, p.queue)}
	p.enter(s)
	defer p.leave(s)
	ended := make(chan error, 1)
	go func() { ended <- s.listen() }()
	for {
		select {
		case frames := <-s.queue:
			err = c.write(stall, frames...)
		case err = <-ended:
			return err
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			_ = c.Close()
			_ = <-ended // as the connection does
			return err
		}
	}
}

func (p *Publisher) enter(s *subscriber) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.subscribers[s] = true
}

func (p *Publisher) leave(s *subscriber) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.subscribers, s)
}

// listen takes the subscriber's subscriptions until its connection ends.
func (s *subscriber) listen() error {
	for {
		frames, err := s.conn.read()
		if err != nil {
			return err
		}
		if f := frames[0]; len(f) > 0 && f[0] <= 1 {
			if err := s.subscribe(f[0] == 1, f[1:]); err != nil {
				return err
			}
		}
	}
}

var errTopics = errors.New("too many or too long topics")

func (s *subscriber) subscribe(on bool, topic []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on {
		if len(s.mu.topics) == maxTopics || len(topic) > maxTopicBytes {
			return errTopics
		}
		s.mu.topics = append(s.mu.topics, topic)
		return nil
	}
	for i, t := range s.mu.topics {
		if bytes.Equal(t, topic) {
			s.mu.topics = append(s.mu.topics[:i], s.mu.topics[i+1:]...)
			break
		}
	}
	return nil
}

func (s *subscriber) wants(topic []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.mu.topics {
		if bytes.HasPrefix(topic, t) {
			return true
		}
	}
	return false
}

// PublisherStats are the numbers of a publisher.
type PublisherStats struct {
	Subscribers int    `json:"subscribers"`
	Sent        uint64 `json:"sent"`    // messages, each for each subscriber
	Dropped     uint64 `json:"dropped"` // that found a queue full
	Refused     uint64 `json:"refused"` // connections beyond the limit
}

// Stats returns them.
func (p *Publisher) Stats() PublisherStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PublisherStats{len(p.mu.subscribers), p.sent.Load(), p.dropped.Load(), p.refused.Load()}
}
