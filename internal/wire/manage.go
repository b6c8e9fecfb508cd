package wire

import (
	"encoding/binary"
	"iter"

	"github.com/kvstored/kvstored/key"
)

// PinRequest protects the chunks of a chain in DRAM under a name.
type PinRequest struct {
	Chain        Chain
	LookupID     string
	MaxAgeMillis uint32 // 0 means the configured one
}

// Append implements Message.
func (m *PinRequest) Append(dst []byte) []byte {
	dst = appendStr(m.Chain.append(dst), m.LookupID)
	return appendOptions(binary.LittleEndian.AppendUint32(dst, m.MaxAgeMillis))
}

// Decode implements Message.
func (m *PinRequest) Decode(body []byte) error {
	c := cursor{b: body}
	c.chain(&m.Chain)
	m.LookupID = c.str("lookup id")
	m.MaxAgeMillis = c.u32("max age")
	return c.endRequest("pin")
}

// PinReply is the leading run that is pinned now.
type PinReply struct{ Pinned Count }

// Append implements Message.
func (m *PinReply) Append(dst []byte) []byte { return appendCount(dst, m.Pinned) }

// Decode implements Message.
func (m *PinReply) Decode(body []byte) error {
	c := cursor{b: body}
	m.Pinned = c.count("pinned")
	return c.end("pin reply")
}

// UnpinRequest ends a pin.
type UnpinRequest struct{ LookupID string }

// Append implements Message.
func (m *UnpinRequest) Append(dst []byte) []byte {
	return appendOptions(appendStr(dst, m.LookupID))
}

// Decode implements Message.
func (m *UnpinRequest) Decode(body []byte) error {
	c := cursor{b: body}
	m.LookupID = c.str("lookup id")
	return c.endRequest("unpin")
}

// ChunksReply is how many chunks an unpin or delete found.
type ChunksReply struct{ Chunks uint64 }

// Append implements Message.
func (m *ChunksReply) Append(dst []byte) []byte {
	return binary.LittleEndian.AppendUint64(dst, m.Chunks)
}

// Decode implements Message.
func (m *ChunksReply) Decode(body []byte) error {
	c := cursor{b: body}
	m.Chunks = c.u64("chunks")
	return c.end("chunks reply")
}

// DeleteWhat says what a delete forgets.
type DeleteWhat uint8

// What can be deleted.
const (
	DeleteChunks DeleteWhat = 0 // single chunks by hash
	DeleteChain  DeleteWhat = 1 // the chunks of a chain that follow the skipped ones
	DeleteSpace  DeleteWhat = 2 // a whole space; needs RightAdmin
)

func (w DeleteWhat) String() string { return name(deleteNames[:], uint16(w), "delete") }

var deleteNames = [...]string{"chunks", "chain", "space"}

// DeleteRequest forgets chunks in every tier.
type DeleteRequest struct {
	What   DeleteWhat
	Chain  Chain  // DeleteChain
	Space  uint32 // DeleteChunks, DeleteSpace: handle
	Width  uint16 // DeleteChunks: bytes of each hash, 8, 16 or 32
	Hashes []byte // DeleteChunks
}

// Append implements Message.
func (m *DeleteRequest) Append(dst []byte) []byte {
	dst = append(dst, byte(m.What))
	switch m.What {
	case DeleteChunks:
		dst = binary.LittleEndian.AppendUint32(dst, m.Space)
		dst = binary.LittleEndian.AppendUint16(dst, m.Width)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(m.Hashes)/max(1, int(m.Width))))
		dst = append(dst, m.Hashes...)
	case DeleteChain:
		dst = m.Chain.append(dst)
	default:
		dst = binary.LittleEndian.AppendUint32(dst, m.Space)
	}
	return appendOptions(dst)
}

// Decode implements Message.
func (m *DeleteRequest) Decode(body []byte) error {
	c := cursor{b: body}
	*m = DeleteRequest{What: DeleteWhat(c.u8("what"))}
	switch m.What {
	case DeleteChunks:
		m.Space = c.u32("space")
		m.Width = c.u16("hash width")
		n := c.u32("count")
		c.hashWidth(m.Width)
		if n > key.MaxChunks {
			c.fail("count", "%d chunks, use at most %d", n, key.MaxChunks)
		}
		m.Hashes = c.list(n, int(m.Width), "hashes")
	case DeleteChain:
		c.chain(&m.Chain)
	case DeleteSpace:
		m.Space = c.u32("space")
	default:
		c.fail("what", "%d is unknown", m.What)
	}
	return c.endRequest("delete")
}

// FlushRequest waits until each chunk unwritten now is written to a tier that
// survives the end of the process.
type FlushRequest struct {
	Durable       bool   // survives a power failure too
	TimeoutMillis uint32 // 0 means no limit
}

// Append implements Message.
func (m *FlushRequest) Append(dst []byte) []byte {
	dst = appendBool(dst, m.Durable)
	return appendOptions(binary.LittleEndian.AppendUint32(dst, m.TimeoutMillis))
}

// Decode implements Message.
func (m *FlushRequest) Decode(body []byte) error {
	c := cursor{b: body}
	*m = FlushRequest{Durable: c.bool("durable"), TimeoutMillis: c.u32("timeout")}
	return c.endRequest("flush")
}

// FlushReply counts the chunks written, and those that were not, by reason.
type FlushReply struct {
	Chunks, Bytes uint64
	Left          Leftovers
}

// Append implements Message.
func (m *FlushReply) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, m.Chunks)
	dst = binary.LittleEndian.AppendUint64(dst, m.Bytes)
	n := 0
	for range m.Left.All() {
		n++
	}
	dst = binary.LittleEndian.AppendUint16(dst, uint16(n))
	return append(dst, m.Left...)
}

// Decode implements Message.
func (m *FlushReply) Decode(body []byte) error {
	c := cursor{b: body}
	m.Chunks, m.Bytes = c.u64("chunks"), c.u64("bytes")
	n := c.u16("reasons")
	start := c.off
	for range n {
		if c.leftover(); c.err != nil {
			break
		}
	}
	m.Left = Leftovers(c.b[start:c.off])
	return c.end("flush reply")
}

// Leftover is what a flush did not write for one reason.
type Leftover struct {
	Reason        string
	Chunks, Bytes uint64
}

// Leftovers is a list of Leftover as it lies in a body.
type Leftovers []byte

// Add appends one element.
func (l Leftovers) Add(o Leftover) Leftovers {
	l = appendStr(l, o.Reason)
	l = binary.LittleEndian.AppendUint64(l, o.Chunks)
	return binary.LittleEndian.AppendUint64(l, o.Bytes)
}

// All yields the elements.
func (l Leftovers) All() iter.Seq[Leftover] {
	return func(yield func(Leftover) bool) {
		c := cursor{b: l}
		for c.left() > 0 {
			o := c.leftover()
			if c.err != nil || !yield(o) {
				return
			}
		}
	}
}

func (c *cursor) leftover() Leftover {
	return Leftover{Reason: c.str("reason"), Chunks: c.u64("reason chunks"), Bytes: c.u64("reason bytes")}
}

// StatsReply is a JSON object.
type StatsReply struct{ JSON []byte }

// Append implements Message.
func (m *StatsReply) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(m.JSON)))
	return append(dst, m.JSON...)
}

// Decode implements Message.
func (m *StatsReply) Decode(body []byte) error {
	c := cursor{b: body}
	m.JSON = c.list(c.u32("json"), 1, "json")
	return c.end("stats reply")
}

// EmptyRequest is the body of stats and ping.
type EmptyRequest struct{}

// Append implements Message.
func (EmptyRequest) Append(dst []byte) []byte { return appendOptions(dst) }

// Decode implements Message.
func (EmptyRequest) Decode(body []byte) error {
	c := cursor{b: body}
	return c.endRequest("empty")
}

// EmptyReply is the body of the replies to abort and ping.
type EmptyReply struct{}

// Append implements Message.
func (EmptyReply) Append(dst []byte) []byte { return dst }

// Decode implements Message.
func (EmptyReply) Decode([]byte) error { return nil }

// ErrorReply is the body of every reply whose status is not ok.
type ErrorReply struct{ Text string }

// Append implements Message.
func (m *ErrorReply) Append(dst []byte) []byte { return appendStr(dst, m.Text) }

// Decode implements Message.
func (m *ErrorReply) Decode(body []byte) error {
	c := cursor{b: body}
	m.Text = c.str("text")
	return c.end("error reply")
}
