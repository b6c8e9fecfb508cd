package server

import (
	"context"
	"time"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

const (
	// eventBatches is how many batches a subscription reads from the log at once.
	eventBatches = 8
	// subscriptionBytes is what a subscription costs: batches, a frame, the spaces
	// that it was told of.
	subscriptionBytes = 256 << 10
	// maxTold bounds the spaces that a subscription remembers to have told.
	maxTold = 2048
)

// subscription is one request for events. Its goroutine reads the log at the pace of
// its client; what the log has forgotten by then is lost, and the client told so.
type subscription struct {
	session *session
	id      uint64 // of the request
	log     *index.Log
	told    map[key.SpaceID]bool
	may     map[key.SpaceID]bool // of the push at hand
	push    wire.EventsPush
	frame   []byte
}

func handleEvents(c *reader, h wire.Header, req wire.EventsRequest) (wire.Message, error) {
	log := c.server.o.Events
	if log == nil {
		return nil, refuse(wire.CodeUnsupported, "events are off; set events.enabled in the daemon's configuration")
	}
	if c.session.maxReply < wire.EventsBytes {
		return nil, refuse(wire.CodeTooLarge, "a push of events may have %d bytes, and the largest reply that was agreed to is %d; agree on more in hello", wire.EventsBytes, c.session.maxReply)
	}
	if err := c.spent.Add(subscriptionBytes); err != nil {
		return nil, err
	}
	if req.From == wire.EventsNow { // that is here: what its client does next is told
		req.From, req.Epoch = log.Next(), log.Epoch()
	}
	s := &subscription{session: c.session, id: h.ID, log: log, told: make(map[key.SpaceID]bool), may: make(map[key.SpaceID]bool)}
	return c.asyncReply(h, func(ctx context.Context) (wire.Message, error) {
		within, cancel := within(ctx, req.Deadline)
		defer cancel()
		next, err := s.run(within, &req)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return &wire.EventsReply{Next: next}, err
	})
}

// run pushes until ctx ends, and returns the number that comes next.
func (s *subscription) run(ctx context.Context, req *wire.EventsRequest) (at uint64, err error) {
	at = req.From
	switch {
	case req.Snapshot:
		if at, err = s.snapshot(ctx); err != nil {
			return at, err
		}
	case req.Epoch != s.log.Epoch():
		at = s.log.Next()
		s.send(ctx, at, time.Now(), wire.EventsLost, nil)
	}
	var batches []index.Batch
	for ctx.Err() == nil {
		var (
			lost bool
			more <-chan struct{}
		)
		batches, at, lost, more = s.log.Read(batches[:0], at, eventBatches)
		if lost {
			s.send(ctx, at, time.Now(), wire.EventsLost, nil)
		}
		for i := range batches {
			s.send(ctx, batches[i].Seq, batches[i].Time, 0, batches[i].Changes)
		}
		if more == nil {
			continue
		}
		base.Await(ctx, more)
	}
	return at, nil
}

// maxSnapshots is how many snapshots of events may be under way: each takes memory for
// all chunks until its client has read it.
const maxSnapshots = 4

// snapshot pushes all that is there, and returns the number of the first batch
// that follows it. It waits while maxSnapshots are under way.
func (s *subscription) snapshot(ctx context.Context) (at uint64, err error) {
	places := s.session.server.snapshots
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	case <-ctx.Done():
		return s.log.Next(), nil
	}
	at = s.log.Next()
	now := time.Now()
	err = s.session.server.o.Store.Operator.Contents(ctx, func(list []index.Change) error {
		s.send(ctx, at, now, wire.EventsSnapshot, list)
		return nil
	})
	if err != nil { // ctx has ended
		return at, nil //nolint:nilerr // its end is no failure
	}
	s.send(ctx, at, now, wire.EventsSnapshot|wire.EventsComplete, nil)
	return at, nil
}

// send waits for room and pushes what the session's user may see of a list.
func (s *subscription) send(ctx context.Context, seq uint64, at time.Time, flags wire.EventsFlags, list []index.Change) {
	s.session.awaitRoom(ctx)
	p := &s.push
	*p = wire.EventsPush{Epoch: s.log.Epoch(), Seq: seq, Micros: uint64(at.UnixMicro()), Flags: flags, Spaces: p.Spaces[:0], Events: p.Events[:0]}
	clear(s.may)
	for i := range list {
		if c := &list[i]; c.Kind == index.Cleared || s.sees(c.Key.Space) {
			p.Events = p.Events.Add(eventOf(c))
		}
	}
	s.frame = wire.AppendPush(s.frame[:0], wire.OpEvents, s.id, p)
	s.session.out.send(s.frame)
}

// eventOf is a change on the wire.
func eventOf(c *index.Change) wire.Event {
	e := wire.Event{Kind: wire.EventKind(c.Kind), Tokens: c.Tokens, Space: c.Key.Space, Hash: c.Key.Hash, Parent: c.Parent}
	if c.Kind != index.Cleared {
		e.Tier = wire.Tiers(tier.Of(tier.Place(c.Place)))
	}
	return e
}

// sees reports whether the session's user may read a space, and tells its identity
// once.
func (s *subscription) sees(id key.SpaceID) bool {
	may, known := s.may[id]
	if known {
		return may
	}
	space := s.session.server.catalog.space(id)
	may = s.session.server.has(s.session.uid, access.Read, id)
	s.may[id] = may
	if may && space.Model != "" && !s.told[id] {
		if len(s.told) >= maxTold {
			clear(s.told)
		}
		s.told[id] = true
		s.push.Spaces = append(s.push.Spaces, wire.EventSpace{ID: id, Space: space})
	}
	return may
}
