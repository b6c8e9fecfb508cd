package client

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// Pin protects the leading run of a prompt that is in DRAM against eviction,
// under a name, for maxAge (0 means the configured age). It returns the run
// that is pinned. A second pin of the same name adds to the first.
func (c *Client) Pin(ctx context.Context, p Prompt, lookupID string, maxAge time.Duration) (Count, error) {
	ch, err := c.chain(wire.OpPin, &p)
	if err != nil {
		return Count{}, err
	}
	var m wire.PinReply
	req := wire.PinRequest{Chain: ch, LookupID: lookupID, MaxAgeMillis: wire.Within(maxAge).Millis}
	err = c.link.do(ctx, wire.OpPin, &req, m.Decode, nil)
	return m.Pinned, err
}

// Unpin ends all pins of that name and returns how many chunks they protected.
func (c *Client) Unpin(ctx context.Context, lookupID string) (chunks uint64, err error) {
	var m wire.PinReply
	err = c.link.do(ctx, wire.OpPin, &wire.PinRequest{Chain: wire.Chain{Form: wire.FormNone}, LookupID: lookupID}, m.Decode, nil)
	return uint64(m.Pinned.Chunks), err
}

// DeletePrompt forgets the chunks of a prompt that follow the skipped ones in
// every tier, and returns how many there were.
func (c *Client) DeletePrompt(ctx context.Context, p Prompt) (uint64, error) {
	ch, err := c.chain(wire.OpDelete, &p)
	if err != nil {
		return 0, err
	}
	return c.delete(ctx, ch)
}

// DeleteSpace forgets a whole space in every tier, and returns how many chunks
// there were. It needs RightAdmin.
func (c *Client) DeleteSpace(ctx context.Context, s *Space) (uint64, error) {
	s, err := c.spaceOr(wire.OpDelete, s)
	if err != nil {
		return 0, err
	}
	return c.delete(ctx, wire.Chain{Space: s.info.Handle, Form: wire.FormNone})
}

func (c *Client) delete(ctx context.Context, ch wire.Chain) (uint64, error) {
	req := wire.DeleteRequest{Chain: ch, Deadline: until(ctx)}
	var m wire.DeleteReply
	err := c.link.do(ctx, wire.OpDelete, &req, m.Decode, nil)
	return m.Chunks, err
}

// until is the deadline of a context for the daemon, which is at least a millisecond.
func until(ctx context.Context) wire.Deadline {
	deadline, ok := ctx.Deadline()
	if !ok {
		return wire.Deadline{}
	}
	return wire.Within(max(time.Millisecond, time.Until(deadline)))
}

// after is the deadline d of a request; 0 leaves it to the operation.
func after(d time.Duration) wire.Deadline {
	if d <= 0 {
		return wire.Deadline{}
	}
	return wire.Within(d)
}

// Leftover is what a flush did not write for one reason.
type Leftover = wire.Leftover

// Flushed is the result of a flush.
type Flushed = wire.FlushReply

// Flush waits until everything that is unwritten when it arrives is written
// below DRAM or given up, at most until ctx ends. Chunks that it wrote survive
// the end of the daemon; durable makes them survive a power failure too.
func (c *Client) Flush(ctx context.Context, durable bool) (Flushed, error) {
	req := wire.FlushRequest{Durable: durable, Deadline: until(ctx)}
	var f Flushed
	err := c.link.do(ctx, wire.OpFlush, &req, f.Decode, nil)
	return f, err
}

// Warm promotes the stored prefix of a prompt to DRAM and leases none of it. It
// is idle work: it waits while a client loads. It returns when all is promoted
// or wait has passed (0: at once), with the prefix found and how far it is; the
// daemon goes on for as long as the connection lasts.
func (c *Client) Warm(ctx context.Context, p Prompt, search Tiers, wait time.Duration) (Match, State, error) {
	ch, err := c.chain(wire.OpWarm, &p)
	if err != nil {
		return Match{}, State{}, err
	}
	return warm(ctx, c, &wire.WarmRequest{Chain: ch, Search: search, Deadline: after(wait)})
}

// WarmNamed is Warm for the prompt of an earlier Prefetch, of this user, by
// its LookupID. ErrNotFound says that the daemon does not know it any more.
func (c *Client) WarmNamed(ctx context.Context, lookupID string, search Tiers, wait time.Duration) (Match, State, error) {
	return warm(ctx, c, &wire.WarmRequest{Chain: wire.Chain{Form: wire.FormNone}, LookupID: lookupID, Search: search, Deadline: after(wait)})
}

func warm(ctx context.Context, c *Client, req *wire.WarmRequest) (Match, State, error) {
	var m wire.WarmReply
	err := c.link.do(ctx, wire.OpWarm, req, m.Decode, nil)
	return matchOf(&m.Match, m.Match.Total.Chunks), stateOf(&m.State), err
}

// Hint says something of the future of a prompt, in request_configs as those of
// PrefetchOptions, without asking for the prompt: when a request of the engine ends or
// pauses. ErrNotFound says that the daemon does not know the subject any more,
// ErrUnknownOp that it is older: do without.
func (c *Client) Hint(ctx context.Context, about Subject, configs map[string]string) (Hinted, error) {
	req := wire.HintRequest{Chain: wire.Chain{Form: wire.FormNone}, LookupID: about.LookupID, Configs: pairs(configs)}
	switch {
	case about.Prompt != nil:
		var err error
		if req.Chain, err = c.chain(wire.OpHint, about.Prompt); err != nil {
			return Hinted{}, err
		}
	case about.LookupID == "" && about.Space != nil:
		req.Chain.Space = about.Space.info.Handle
	}
	var m wire.HintReply
	err := c.link.do(ctx, wire.OpHint, &req, m.Decode, nil)
	return Hinted{m.Retained, m.Faults}, err
}

// Events calls do with what the tiers come to have and lose, in order, until ctx or
// the connection ends or do returns an error, which it returns. One call at a time is
// possible on a connection, which should be used for nothing else: the goroutine of
// another call may be the one that reads, and then calls do. The daemon tells of
// the spaces that the user may read; where events are off the error is
// ErrUnsupported.
func (c *Client) Events(ctx context.Context, o EventsOptions, do func(*EventBatch) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &eventStream{do: do, stop: cancel}
	if !subscribe(c, nil, s) {
		return refuse("events", ErrBadRequest, "this connection has a call of Events already; use another connection")
	}
	defer subscribe(c, s, nil)
	req := wire.EventsRequest{Epoch: o.Epoch, From: o.From, Snapshot: o.Snapshot}
	err := c.link.exchange(ctx, &message{op: wire.OpEvents, head: req.Append, take: new(wire.EventsReply).Decode, begins: s.id.Store})
	if cause := context.Cause(ctx); ctx.Err() != nil && cause != nil {
		return cause
	}
	return err
}

// subscribe exchanges the stream of events, if there is the one expected.
func subscribe(c *Client, from, to *eventStream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.events != from {
		return false
	}
	c.mu.events = to
	return true
}

// Fault is one of the request configs, or one of the actions in their kv_hints, that
// did not count, and why. All others did.
type Fault = wire.Fault

// NoAction as the action of a Fault says that a config is at fault.
const NoAction = wire.NoAction

// Hinted is what became of a hint.
type Hinted struct {
	Retained Count // chunks that the claims of the hint cover now
	Faults   []Fault
}

// Subject is what a hint is about: Prompt; or else the prompt of an earlier Prefetch of
// this user, by its LookupID; or else the last prompt in Space of the session that the
// configs name.
type Subject struct {
	Prompt   *Prompt
	LookupID string
	Space    *Space
}

func pairs(configs map[string]string) (l wire.Pairs) {
	for name, value := range configs {
		l = l.Add(name, value)
	}
	return l
}

// Event is one change of what one tier of the daemon holds.
type Event = wire.Event

// EventKind is what an Event says.
type EventKind = wire.EventKind

// The kinds of events.
const (
	EventStored  = wire.EventStored  // the chunk is in the tier
	EventRemoved = wire.EventRemoved // it is not any more
	EventCleared = wire.EventCleared // forget everything; what is there is said again
)

// EventsNow is the place of the next batch there will be.
const EventsNow = wire.EventsNow

// EventsOptions say what Events begins with. The zero EventsOptions ask for the
// first batch of epoch 0, which is lost.
type EventsOptions struct {
	Epoch    uint64 // of From
	From     uint64 // number of the first batch, or EventsNow
	Snapshot bool   // first all that is there; From does not count
}

// EventBatch is a batch, or a part of a snapshot.
type EventBatch struct {
	Epoch uint64 // the numbers of two epochs have nothing to do with each other
	Seq   uint64 // of the batch; of a snapshot and with Lost that of the batch that comes next
	Time  time.Time
	// Snapshot marks a part of a snapshot; Complete marks its
	// last part. A client forgets all it knew before a snapshot.
	Snapshot, Complete bool
	// Lost says that batches before Seq are gone, or of another epoch: the client's
	// picture is stale.
	Lost   bool
	Spaces map[key.SpaceID]key.Space // told for the first time; without salts
	Events []Event                   // valid until the callback returns
}

// eventStream is one call of Events.
type eventStream struct {
	id   atomic.Uint64 // of its request; pushes of an earlier one may still come
	do   func(*EventBatch) error
	stop context.CancelCauseFunc
	list []Event
}

// update hands on a push.
func (s *eventStream) update(body []byte) error {
	var m wire.EventsPush
	if err := m.Decode(body); err != nil {
		return err
	}
	s.list = s.list[:0]
	for i := range m.Events.Len() {
		s.list = append(s.list, m.Events.At(i))
	}
	b := EventBatch{
		Epoch: m.Epoch, Seq: m.Seq, Time: time.UnixMicro(int64(m.Micros)), Events: s.list,
		Snapshot: m.Flags&wire.EventsSnapshot != 0, Complete: m.Flags&wire.EventsComplete != 0, Lost: m.Flags&wire.EventsLost != 0,
	}
	for i := range m.Spaces {
		if b.Spaces == nil {
			b.Spaces = make(map[key.SpaceID]key.Space)
		}
		b.Spaces[m.Spaces[i].ID] = m.Spaces[i].Space
	}
	if err := s.do(&b); err != nil {
		s.do = func(*EventBatch) error { return nil } // what comes before the daemon knows
		s.stop(err)
	}
	return nil
}
