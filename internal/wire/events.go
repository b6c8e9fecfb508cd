package wire

import (
	"encoding/binary"

	"github.com/kvstored/kvstored/key"
)

// EventsRequest asks for the changes of all tiers, as pushes with the
// request's id. The reply comes when that ends: when the client cancels it.
type EventsRequest struct {
	Epoch    uint64 // of the numbers; 0 with From = EventsNow
	From     uint64 // number of the first batch, or EventsNow
	Snapshot bool   // first all that is there
	Deadline Deadline
}

// EventsNow stands for the number of the next batch.
const EventsNow = 1<<64 - 1

const eventsKnown = 1 // snapshot

// EventsBytes is the least largest reply of a client that may ask for events: a push has
// a batch, and what its spaces are, which may be all that the daemon remembers.
const EventsBytes = 4 << 20

// Append implements Message.
func (m *EventsRequest) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, m.Epoch)
	dst = binary.LittleEndian.AppendUint64(dst, m.From)
	return appendDeadline(appendZero(appendBool(dst, m.Snapshot), 7), m.Deadline)
}

// Decode implements Message.
func (m *EventsRequest) Decode(body []byte) error {
	c := requestCursor(body)
	*m = EventsRequest{Epoch: c.u64("epoch"), From: c.u64("from")}
	m.Snapshot = c.flags(eventsKnown, "flags") != 0
	c.zero(7, "flags")
	return c.endRequest("events", &m.Deadline)
}

// EventsFlags say what a push of events is.
type EventsFlags uint8

// The flags of a push of events.
const (
	EventsSnapshot EventsFlags = 1 // a part of what is there, not a batch
	EventsComplete EventsFlags = 2 // the snapshot is complete: batches follow
	EventsLost     EventsFlags = 4 // batches were lost, or are of another epoch; ask for a snapshot
)

// EventsPush is a batch, a part of a snapshot, or the news that batches were lost.
type EventsPush struct {
	Epoch  uint64
	Seq    uint64 // of the batch; else of the next one
	Micros uint64 // since 1970, when it was made
	Flags  EventsFlags
	Spaces []EventSpace // those of Changes that were not told before
	Events Events
}

// EventSpace is what the id of a space stands for; its salt is not told.
type EventSpace struct {
	ID    key.SpaceID
	Space key.Space // zero: not known to the daemon
}

// Append implements Message.
func (m *EventsPush) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, m.Epoch)
	dst = binary.LittleEndian.AppendUint64(dst, m.Seq)
	dst = binary.LittleEndian.AppendUint64(dst, m.Micros)
	dst = appendZero(append(dst, byte(m.Flags)), 7)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(m.Spaces)))
	dst = appendZero(dst, 4)
	for i := range m.Spaces {
		at := len(dst)
		dst = append(beginRecord(dst), m.Spaces[i].ID[:]...)
		dst = endRecord(appendSpaceRecord(dst, &m.Spaces[i].Space), at)
	}
	return noOptions(appendArray(dst, eventBytes, m.Events))
}

// Decode implements Message.
func (m *EventsPush) Decode(body []byte) error {
	c := replyCursor(body)
	*m = EventsPush{Epoch: c.u64("epoch"), Seq: c.u64("seq"), Micros: c.u64("micros"), Flags: EventsFlags(c.u8("flags"))}
	c.zero(7, "flags")
	c.listed("spaces", func(sub *cursor) {
		var s EventSpace
		copy(s.ID[:], sub.bytes(int64(len(s.ID)), "space id"))
		spaceRecord(sub, &s.Space)
		m.Spaces = append(m.Spaces, s)
	})
	m.Events = c.array(eventBytes, "events")
	return c.endReply("events push")
}

// Event is one change of what one tier holds.
type Event struct {
	Kind   EventKind
	Tier   Tiers  // one
	Tokens uint32 // in the chunk, of EventStored; 0: as many as a chunk of the space has
	Space  key.SpaceID
	Hash   key.Hash
	Parent key.Hash // of EventStored; zero for the first chunk of a prompt
}

// EventKind is what an event says.
type EventKind uint8

// The kinds of events.
const (
	EventStored  EventKind = 0 // the chunk is in the tier
	EventRemoved EventKind = 1 // it is not any more
	EventCleared EventKind = 2 // nothing is known to be anywhere; what is there is said again
)

const eventBytes = 56

// Events is a list of Event as it lies in a body.
type Events []byte

// Add appends one element.
func (l Events) Add(e Event) Events {
	l = append(l, byte(e.Kind), byte(e.Tier), 0, 0)
	l = binary.LittleEndian.AppendUint32(l, e.Tokens)
	l = append(append(l, e.Space[:]...), e.Hash[:]...)
	return append(l, e.Parent[:]...)
}

// Len is the number of elements.
func (l Events) Len() int { return len(l) / eventBytes }

// At returns element i.
func (l Events) At(i int) Event {
	b := l[i*eventBytes:][:eventBytes]
	return Event{
		Kind: EventKind(b[0]), Tier: Tiers(b[1]), Tokens: binary.LittleEndian.Uint32(b[4:]),
		Space: key.SpaceID(b[8:24]), Hash: key.Hash(b[24:40]), Parent: key.Hash(b[40:56]),
	}
}

// EventsReply ends a subscription.
type EventsReply struct {
	Next uint64 // number of the batch that would have come next
}

// Append implements Message.
func (m *EventsReply) Append(dst []byte) []byte {
	return noOptions(binary.LittleEndian.AppendUint64(dst, m.Next))
}

// Decode implements Message.
func (m *EventsReply) Decode(body []byte) error {
	c := replyCursor(body)
	m.Next = c.u64("next")
	return c.endReply("events reply")
}

func (k EventKind) String() string { return name(eventKindNames[:], uint16(k), "kind") }

var eventKindNames = [...]string{EventStored: "stored", EventRemoved: "removed", EventCleared: "cleared"}
