package wire

import (
	"errors"

	"github.com/kvstored/kvstored/key"
)

// Limits of what a message may list, and of what a connection keeps.
const (
	MaxBatch   = 1024 // prompts of one batch
	MaxFaults  = 32   // that a reply tells
	MaxSums    = 4096
	MaxRanks   = 1024
	MaxGroups  = 64
	MaxLengths = 4096
	// EventsBytes is the least largest reply of a client that may ask for events: a push has
	// a batch, and what its spaces are, which may be all that the daemon remembers.
	EventsBytes = 4 << 20
)

func (m *BatchReply) check(c *cursor) {
	if m.Order.Len() != len(m.Jobs) {
		c.fail("order", "%d numbers for %d jobs", m.Order.Len(), len(m.Jobs))
	}
}

func (m *ReserveRequest) check(c *cursor) { checkSizes(c, m.Sizes, m.Groups.Len() > 0) }

// checkSizes checks the rules for every list of payload sizes. some says that a
// chunk may have none.
func checkSizes(c *cursor, l U32s, some bool) {
	if n := l.Len(); n > key.MaxChunks {
		c.fail("sizes", "%d, use at most %d", n, key.MaxChunks)
		return
	}
	for i := range l.Len() {
		if l.At(i) == 0 && !some {
			c.fail("sizes", "chunk %d has no bytes", i)
			return
		}
	}
}

func (m *HintRequest) check(c *cursor) {
	if m.LookupID != "" && m.Chain.Form != FormNone {
		m.Chain.twoNames(c, m.LookupID)
	}
}

func (m *WarmRequest) check(c *cursor) {
	if named := m.LookupID != ""; named != (m.Chain.Form == FormNone) {
		m.Chain.twoNames(c, m.LookupID)
	}
}

// twoNames refuses a chain, or none, beside a lookup id.
func (ch *Chain) twoNames(c *cursor, lookupID string) {
	c.fail("lookup id", "%q with a chain of form %s: send a chain, or a lookup id and form none", lookupID, ch.Form)
}

// Version is the protocol version of this package, the only one that it speaks.
const Version = 2

// Magic starts the body of hello, the first frame of every connection.
const Magic = "KVS1"

// ErrMalformed is wrapped by every error about bytes that do not follow the
// protocol. A server answers it with CodeBadRequest.
var ErrMalformed = errors.New("malformed")

// Numbers that stand for something else.
const (
	EventsNow  = 1<<64 - 1 // as the number of a batch: that of the next one
	FromUnsent = 1<<32 - 1 // in a WaitRequest: the refs not yet sent on the connection
	NoAction   = 1<<32 - 1 // as the action of a Fault: a config is at fault
	NotKnown   = 1<<32 - 1 // as a number of seconds
)

// Known reports whether this package knows o.
func (v Op) Known() bool { return int(v) < len(opNames) && opNames[v] != "" }

// Error returns the stable name.
func (v Code) Error() string { return v.String() }

// Present reports whether a chunk that was committed or put is there now, from
// this fill or another.
func (v Code) Present() bool { return v == CodeOK || v == CodeExists || v == CodeDiffers }

// retry is when a request that was refused with v may be sent again.
func (v Code) retry() Retry {
	if int(v) < len(codeRetries) {
		return codeRetries[v]
	}
	return RetryNever
}

// Done reports that nothing more comes.
func (m *JobState) Done() bool { return m.Code != CodeRunning }
