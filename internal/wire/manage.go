package wire

import "encoding/binary"

// PinRequest protects the chunks of a chain in DRAM under a name.
type PinRequest struct {
	Chain        Chain
	LookupID     string
	MaxAgeMillis uint32 // 0 means the configured one
}

// Append implements Message.
func (m *PinRequest) Append(dst []byte) []byte {
	dst = appendZero(binary.LittleEndian.AppendUint32(m.Chain.append(dst), m.MaxAgeMillis), 4)
	return noOptions(appendStr(dst, m.LookupID))
}

// Decode implements Message.
func (m *PinRequest) Decode(body []byte) error {
	c := requestCursor(body)
	c.chain(&m.Chain)
	m.MaxAgeMillis = c.u32("max age")
	c.zero(4, "max age")
	m.LookupID = c.str("lookup id")
	return c.endRequest("pin", nil)
}

// PinReply is the leading run that is pinned now.
type PinReply struct{ Pinned Count }

// Append implements Message.
func (m *PinReply) Append(dst []byte) []byte { return noOptions(appendCount(dst, m.Pinned)) }

// Decode implements Message.
func (m *PinReply) Decode(body []byte) error {
	c := replyCursor(body)
	m.Pinned = c.count("pinned")
	return c.endReply("pin reply")
}

// UnpinRequest ends a pin.
type UnpinRequest struct{ LookupID string }

// Append implements Message.
func (m *UnpinRequest) Append(dst []byte) []byte {
	return noOptions(appendStr(dst, m.LookupID))
}

// Decode implements Message.
func (m *UnpinRequest) Decode(body []byte) error {
	c := requestCursor(body)
	m.LookupID = c.str("lookup id")
	return c.endRequest("unpin", nil)
}

// ChunksReply is how many chunks an unpin or delete found.
type ChunksReply struct{ Chunks uint64 }

// Append implements Message.
func (m *ChunksReply) Append(dst []byte) []byte {
	return noOptions(binary.LittleEndian.AppendUint64(dst, m.Chunks))
}

// Decode implements Message.
func (m *ChunksReply) Decode(body []byte) error {
	c := replyCursor(body)
	m.Chunks = c.u64("chunks")
	return c.endReply("chunks reply")
}

// DeleteRequest forgets chunks in every tier: those of a chain that follow the
// skipped ones, or with FormNone all of the space, which needs RightAdmin.
type DeleteRequest struct {
	Chain    Chain
	Deadline Deadline
}

// Append implements Message.
func (m *DeleteRequest) Append(dst []byte) []byte {
	return appendDeadline(m.Chain.append(dst), m.Deadline)
}

// Decode implements Message.
func (m *DeleteRequest) Decode(body []byte) error {
	c := requestCursor(body)
	c.chain(&m.Chain)
	return c.endRequest("delete", &m.Deadline)
}

// FlushRequest waits until each chunk unwritten now is written to a tier that
// survives the end of the process.
type FlushRequest struct {
	Durable  bool     // survives a power failure too
	Deadline Deadline // not given: none
}

// Append implements Message.
func (m *FlushRequest) Append(dst []byte) []byte {
	return appendDeadline(appendZero(appendBool(dst, m.Durable), 7), m.Deadline)
}

// Decode implements Message.
func (m *FlushRequest) Decode(body []byte) error {
	c := requestCursor(body)
	*m = FlushRequest{Durable: c.bool("durable")}
	c.zero(7, "durable")
	return c.endRequest("flush", &m.Deadline)
}

// FlushReply counts the chunks written, and those that were not, by reason.
type FlushReply struct {
	Chunks, Bytes uint64
	Left          []Leftover
}

// Leftover is what a flush did not write for one reason.
type Leftover struct {
	Reason        string
	Chunks, Bytes uint64
}

// Append implements Message.
func (m *FlushReply) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, m.Chunks)
	dst = binary.LittleEndian.AppendUint64(dst, m.Bytes)
	dst = appendZero(binary.LittleEndian.AppendUint32(dst, uint32(len(m.Left))), 4)
	for _, l := range m.Left {
		at := len(dst)
		dst = binary.LittleEndian.AppendUint64(beginRecord(dst), l.Chunks)
		dst = binary.LittleEndian.AppendUint64(dst, l.Bytes)
		dst = endRecord(appendStr(dst, l.Reason), at)
	}
	return noOptions(dst)
}

// Decode implements Message.
func (m *FlushReply) Decode(body []byte) error {
	c := replyCursor(body)
	*m = FlushReply{Chunks: c.u64("chunks"), Bytes: c.u64("bytes")}
	c.listed("left", func(sub *cursor) {
		m.Left = append(m.Left, Leftover{Chunks: sub.u64("left chunks"), Bytes: sub.u64("left bytes"), Reason: sub.str("reason")})
	})
	return c.endReply("flush reply")
}

// StatsReply is a JSON object.
type StatsReply struct{ JSON []byte }

// Append implements Message.
func (m *StatsReply) Append(dst []byte) []byte { return noOptions(appendStr(dst, m.JSON)) }

// Decode implements Message.
func (m *StatsReply) Decode(body []byte) error {
	c := replyCursor(body)
	m.JSON = c.view("json")
	return c.endReply("stats reply")
}

// EmptyRequest is the body of stats and ping.
type EmptyRequest struct{}

// Append implements Message.
func (EmptyRequest) Append(dst []byte) []byte { return noOptions(dst) }

// Decode implements Message.
func (EmptyRequest) Decode(body []byte) error {
	c := requestCursor(body)
	return c.endRequest("empty", nil)
}

// EmptyReply is the body of the replies to abort and ping.
type EmptyReply struct{}

// Append implements Message.
func (EmptyReply) Append(dst []byte) []byte { return noOptions(dst) }

// Decode implements Message.
func (EmptyReply) Decode(body []byte) error {
	c := replyCursor(body)
	return c.endReply("empty reply")
}

// ErrorReply is the body of every reply whose code is not ok, but for CodeVersion.
type ErrorReply struct {
	Retry       Retry
	AfterMillis uint32 // with RetryLater and RetryReconnect
	Text        string // what is wrong and what to do about it, for people
	Limit       uint64 // with CodeTooLarge: the largest value that would have passed; 0: not told
}

// Append implements Message.
func (m *ErrorReply) Append(dst []byte) []byte {
	dst = appendZero(append(dst, byte(m.Retry)), 3)
	dst = appendStr(binary.LittleEndian.AppendUint32(dst, m.AfterMillis), m.Text)
	l := beginOptions(dst, Deadline{})
	if m.Limit != 0 {
		l.put64(replyLimit, m.Limit)
	}
	return l.end()
}

// Decode implements Message.
func (m *ErrorReply) Decode(body []byte) error {
	c := replyCursor(body)
	*m = ErrorReply{Retry: Retry(c.u8("retry"))}
	c.zero(3, "retry")
	m.AfterMillis, m.Text = c.u32("after"), c.text("text")
	c.options(func(tag uint16, v *cursor) bool {
		if tag != replyLimit {
			return false
		}
		m.Limit = v.u64("limit")
		return true
	})
	return c.end("error reply")
}
