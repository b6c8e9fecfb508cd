package client

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

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
