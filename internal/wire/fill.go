package wire

import (
	"encoding/binary"

	"github.com/kvstored/kvstored/key"
)

// Flags of a reservation.
const (
	ReserveAllOrNothing uint8 = 1 << 0 // refuse what would be cut short
	ReserveNoEvict      uint8 = 1 << 1 // take only room that is free

	reserveKnown = ReserveAllOrNothing | ReserveNoEvict
)

// ReserveRequest asks for room for chunks First and following.
type ReserveRequest struct {
	Chain Chain
	First uint32
	Count uint32 // chunks; 0 means all that follow First
	Flags uint8
	// Sizes is the payload bytes of each chunk, or one size for all. With Groups it is a
	// size of each group, or of each chunk of the first, then of the next and so on;
	// a chunk of 0 bytes is not offered, and has no slot.
	Sizes U32s
	// Deadline is how long the answer may wait for room while there is none
	// for the first chunk, and for the tiers below to catch up. Not given: the
	// answer comes at once.
	Deadline Deadline
	Groups   Groups
	Grain    uint32 // see Shared
	// MaxAge is how many seconds its chunks may stay in any tier; 0: any time.
	MaxAge uint32
	// Sums are checksums of what the client would store in some slots, to be
	// compared with what exists there.
	Sums Sums
}

// Append implements Message.
func (m *ReserveRequest) Append(dst []byte) []byte {
	dst = m.Chain.append(dst)
	dst = binary.LittleEndian.AppendUint32(dst, m.First)
	dst = binary.LittleEndian.AppendUint32(dst, m.Count)
	dst = appendZero(append(dst, m.Flags), 7)
	l := beginOptions(appendArray(dst, 4, m.Sizes), m.Deadline)
	l.list(tagSums, sumBytes, m.Sums)
	l.list(tagGroups, groupBytes, m.Groups)
	l.add32(tagMaxAge, m.MaxAge)
	l.add32(tagGrain, m.Grain)
	return l.end()
}

// Decode implements Message.
func (m *ReserveRequest) Decode(body []byte) error {
	c := requestCursor(body)
	*m = ReserveRequest{}
	c.chain(&m.Chain)
	m.First, m.Count = c.u32("first"), c.u32("count")
	m.Flags = c.flags(reserveKnown, "flags")
	c.zero(7, "flags")
	m.Sizes = c.numbers(4, "sizes")
	if c.bare() {
		checkSizes(&c, m.Sizes, false)
		return c.end("reserve")
	}
	c.requestOptions(&m.Deadline, m.option)
	checkSizes(&c, m.Sizes, m.Groups.Len() > 0)
	return c.endBody("reserve")
}

// option reads one of the options.
func (m *ReserveRequest) option(tag uint16, v *cursor) bool {
	switch tag {
	case tagSums:
		m.Sums = v.array(sumBytes, "sums")
		v.atMost(m.Sums.Len(), MaxSums, "sums")
	case tagGroups:
		m.Groups = groupsIn(v)
	case tagMaxAge:
		m.MaxAge = maxAgeIn(v)
	case tagGrain:
		m.Grain = grainIn(v)
	default:
		return false
	}
	return true
}

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

// ReserveReply is the fill that was made.
type ReserveReply struct {
	Fill  uint64
	Code  Code  // why Slots is shorter than the run asked for; CodeOK: it is not
	Slots Slots // chunks First and following
	// Differ are the slots that exist with another checksum than the one the
	// request gave.
	Differ U32s
}

// Append implements Message.
func (m *ReserveReply) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, m.Fill)
	dst = appendArray(appendCode(dst, m.Code, 8), slotBytes, m.Slots)
	l := beginOptions(dst, Deadline{})
	l.list(replyDiffer, 4, m.Differ)
	return l.end()
}

// Decode implements Message.
func (m *ReserveReply) Decode(body []byte) error {
	c := replyCursor(body)
	m.Fill = c.u64("fill")
	m.Code = c.code(8, "code")
	m.Slots = c.array(slotBytes, "slots")
	if m.Differ = nil; c.bare() {
		return c.end("reserve reply")
	}
	c.options(func(tag uint16, v *cursor) bool {
		if tag != replyDiffer {
			return false
		}
		m.Differ = v.numbers(4, "differ")
		return true
	})
	return c.end("reserve reply")
}

// FillRequest names slots of a fill: the body of commit and abort.
type FillRequest struct {
	Fill  uint64
	First uint32 // slot, not chunk: 0 is the first of the reserve reply
	Count uint32 // slots; 0 means all that follow First
}

// Append implements Message.
func (m *FillRequest) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, m.Fill)
	dst = binary.LittleEndian.AppendUint32(dst, m.First)
	dst = binary.LittleEndian.AppendUint32(dst, m.Count)
	return noOptions(dst)
}

// Decode implements Message.
func (m *FillRequest) Decode(body []byte) error {
	c := requestCursor(body)
	*m = FillRequest{Fill: c.u64("fill"), First: c.u32("first"), Count: c.u32("count")}
	return c.endRequest("fill", nil)
}

// StoreReply is what became of the chunks of a commit or put, in their order.
type StoreReply struct{ Results Results }

// Append implements Message.
func (m *StoreReply) Append(dst []byte) []byte {
	return noOptions(appendArray(dst, storedBytes, m.Results))
}

// Decode implements Message.
func (m *StoreReply) Decode(body []byte) error {
	c := replyCursor(body)
	m.Results = c.array(storedBytes, "results")
	return c.endReply("store reply")
}
