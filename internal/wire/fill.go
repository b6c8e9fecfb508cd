package wire

import (
	"encoding/binary"

	"github.com/kvstored/kvstored/key"
)

// ReserveAllOrNothing refuses a reservation that would be cut short.
const ReserveAllOrNothing uint8 = 1 << 0

// ReserveRequest asks for room for chunks First and following.
type ReserveRequest struct {
	Chain Chain
	First uint32
	Count uint32 // chunks; 0 means all that follow First
	Flags uint8
	Sizes U32s // payload bytes of each chunk, or one size for all
	// WaitMillis is how long the answer may wait for room while there is none
	// for the first chunk, and for the tiers below to catch up. An option:
	// 0 leaves it out, and the answer comes at once.
	WaitMillis uint32
	// Sums are checksums of what the client would store in some slots, to be
	// compared with what exists there. An option that an older daemon passes
	// over; nil leaves it out.
	Sums Sums
}

// Append implements Message.
func (m *ReserveRequest) Append(dst []byte) []byte {
	dst = m.Chain.append(dst)
	dst = binary.LittleEndian.AppendUint32(dst, m.First)
	dst = binary.LittleEndian.AppendUint32(dst, m.Count)
	dst = append(dst, m.Flags)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.Sizes.Len()))
	return appendReserveOptions(append(dst, m.Sizes...), m.WaitMillis, m.Sums)
}

// Decode implements Message.
func (m *ReserveRequest) Decode(body []byte) error {
	c := cursor{b: body}
	c.chain(&m.Chain)
	m.First, m.Count = c.u32("first"), c.u32("count")
	m.Flags = c.flags(ReserveAllOrNothing, "flags")
	m.Sizes = c.list(c.u32("sizes"), 4, "sizes")
	c.sizes(m.Sizes)
	m.WaitMillis, m.Sums = 0, nil
	return c.endWith("reserve", func(tag uint16, value cursor) bool {
		switch tag {
		case optionWait:
			m.WaitMillis = value.u32("wait")
			if value.err != nil || value.left() != 0 {
				c.fail("wait", "%d bytes, a wait has 4", len(value.b))
			}
		case optionSums:
			if len(value.b)%sumBytes != 0 || len(value.b) > maxSums*sumBytes {
				c.fail("sums", "%d bytes, use %d for each of at most %d", len(value.b), sumBytes, maxSums)
			}
			m.Sums = value.b
		default:
			return false
		}
		return true
	})
}

// sizes checks the rules for every list of payload sizes.
func (c *cursor) sizes(l U32s) {
	if n := l.Len(); n > key.MaxChunks {
		c.fail("sizes", "%d, use at most %d", n, key.MaxChunks)
		return
	}
	for i := range l.Len() {
		if l.At(i) == 0 {
			c.fail("sizes", "chunk %d has no bytes", i)
			return
		}
	}
}

// ReserveReply is the fill that was made.
type ReserveReply struct {
	Fill   uint64
	Reason Reason // why Slots is shorter than the run asked for
	Slots  Slots  // chunks First and following
	// Differ are the slots that exist with another checksum than the one the
	// request gave.
	Differ U32s
}

// Append implements Message.
func (m *ReserveReply) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, m.Fill)
	dst = append(dst, byte(m.Reason))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.Slots.Len()))
	dst = append(dst, m.Slots...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.Differ.Len()))
	return append(dst, m.Differ...)
}

// Decode implements Message.
func (m *ReserveReply) Decode(body []byte) error {
	c := cursor{b: body}
	m.Fill = c.u64("fill")
	m.Reason = Reason(c.u8("reason"))
	m.Slots = c.list(c.u32("slots"), slotBytes, "slots")
	if m.Differ = nil; c.left() > 0 { // an older daemon says nothing of it
		m.Differ = c.list(c.u32("differ"), 4, "differ")
	}
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
	return appendOptions(binary.LittleEndian.AppendUint32(dst, m.Count))
}

// Decode implements Message.
func (m *FillRequest) Decode(body []byte) error {
	c := cursor{b: body}
	*m = FillRequest{Fill: c.u64("fill"), First: c.u32("first"), Count: c.u32("count")}
	return c.endRequest("fill")
}

// StoreReply is what became of the chunks of a commit or put, in their order.
type StoreReply struct{ Results Results }

// Append implements Message.
func (m *StoreReply) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.Results.Len()))
	return append(dst, m.Results...)
}

// Decode implements Message.
func (m *StoreReply) Decode(body []byte) error {
	c := cursor{b: body}
	m.Results = c.list(c.u32("results"), storedBytes, "results")
	return c.end("store reply")
}
