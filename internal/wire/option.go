package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/kvstored/kvstored/key"
)

// optionCritical marks tags that a reader must know. Any other unknown tag is
// passed over.
const optionCritical = 1 << 15

// ErrUnknownOption is wrapped, besides ErrMalformed, when a message carries
// something that this side does not know and must not pass over. A server answers
// it with CodeUnknownOption.
var ErrUnknownOption = fmt.Errorf("%w: unknown option", ErrMalformed)

// Deadline is how long the answer to a request may wait, from its receipt. The
// zero Deadline leaves it to the operation.
type Deadline struct {
	Given  bool
	Millis uint32 // 0: not at all
}

// Within is the Deadline of d, which is rounded up to milliseconds.
func Within(d time.Duration) Deadline {
	if d <= 0 {
		return Deadline{Given: true}
	}
	return Deadline{true, uint32(min((d+time.Millisecond-1)/time.Millisecond, 1<<32-1))}
}

// Or is the time that was given, or d.
func (d Deadline) Or(otherwise time.Duration) time.Duration {
	if d.Given {
		return time.Duration(d.Millis) * time.Millisecond
	}
	return otherwise
}

// option is one of the list at the end of a message, which is read with
//
//	for o := c.options(); c.next(&o); {
//		switch o.tag { // a value that is not read goes to o.unknown
type option struct {
	tag   int // -1 before the first
	value cursor
	left  uint32
}

func (c *cursor) options() option {
	n := c.u32("options")
	c.zero(4, "options")
	return option{tag: -1, left: n}
}

// next goes from one option to the one behind it.
func (c *cursor) next(o *option) bool {
	if o.tag >= 0 {
		c.ended(&o.value, "option")
	}
	if o.left == 0 || c.err != nil {
		return false
	}
	o.left--
	tag := int(c.u16("option tag"))
	c.zero(2, "option")
	size := int64(c.u32("option length"))
	base := c.base + c.off
	o.value = cursor{b: c.padded(size, 0, "option"), base: base, strict: c.strict, err: c.err}
	if tag <= o.tag {
		c.fail("option tag", "%#x after %#x: send them in order, and none twice", tag, o.tag)
	}
	o.tag = tag
	return c.err == nil
}

// unknown passes over the option, unless it must be known.
func (o *option) unknown() {
	if o.tag&optionCritical != 0 {
		o.value.err = fmt.Errorf("%w %#x at byte %d", ErrUnknownOption, o.tag, o.value.base)
	}
	o.value.off = len(o.value.b)
}

// noOptions passes over a list of which nothing is known.
func (c *cursor) noOptions() {
	if c.bare() {
		return
	}
	for o := c.options(); c.next(&o); {
		o.unknown()
	}
}

// deadline reads a list that may have a deadline.
func (c *cursor) deadline() (d Deadline) {
	if c.bare() {
		return Deadline{}
	}
	for o := c.options(); c.next(&o); {
		if o.tag != tagDeadline {
			o.unknown()
			continue
		}
		d = Deadline{true, o.value.u32("deadline")}
	}
	return d
}

// given reads the number of an option. It is not 0: the option is left out then.
func (c *cursor) given(most uint32, field, what string) uint32 {
	n := c.u32(field)
	if n == 0 || n > most {
		c.fail(field, "%d, send %s, or leave it out", n, what)
	}
	return n
}

// bare passes over the list at the end of a message if it is empty, as most are.
func (c *cursor) bare() bool {
	if c.err != nil || c.left() != 8 || binary.LittleEndian.Uint64(c.b[c.off:]) != 0 {
		return false
	}
	c.off = len(c.b)
	return true
}

// noOptions appends the empty list.
func noOptions(dst []byte) []byte { return appendZero(dst, 8) }

// appendDeadline appends a list of a deadline, or of nothing.
func appendDeadline(dst []byte, d Deadline) []byte {
	if !d.Given {
		return noOptions(dst)
	}
	l := beginOptions(dst, d)
	return l.end()
}

// optionList is a list being appended, in the order of the tags.
type optionList struct {
	dst []byte
	at  int // where its count lies
	n   uint32
}

func beginOptions(dst []byte, d Deadline) optionList {
	l := optionList{dst: noOptions(dst), at: len(dst)}
	if d.Given {
		l.put32(tagDeadline, d.Millis)
	}
	return l
}

// begin appends the head of an option, whose value the caller appends; finish,
// given its result, ends it.
func (l *optionList) begin(tag uint16) (start int) {
	l.n++
	start = len(l.dst)
	l.dst = binary.LittleEndian.AppendUint32(l.dst, uint32(tag)) // u16, and u16 zero
	l.dst = appendZero(l.dst, 4)
	return start
}

func (l *optionList) finish(start int) {
	n := len(l.dst) - start - 8
	binary.LittleEndian.PutUint32(l.dst[start+4:], uint32(n))
	l.dst = appendPad(l.dst, n)
}

func (l *optionList) put32(tag uint16, v uint32) {
	at := l.begin(tag)
	l.dst = binary.LittleEndian.AppendUint32(l.dst, v)
	l.finish(at)
}

func (l *optionList) put64(tag uint16, v uint64) {
	at := l.begin(tag)
	l.dst = binary.LittleEndian.AppendUint64(l.dst, v)
	l.finish(at)
}

func (l *optionList) end() []byte {
	binary.LittleEndian.PutUint32(l.dst[l.at:], l.n)
	return l.dst
}

func (c *cursor) atMost(n, most int, field string) {
	if n > most {
		c.fail(field, "%d, use at most %d", n, most)
	}
}

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
