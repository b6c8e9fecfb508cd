package wire

import "encoding/binary"

// PutRequest stores payloads that come with it: chunks First and following.
type PutRequest struct {
	Chain Chain
	First uint32
	Sizes U32s // payload bytes of each chunk
	// PayloadBytes is how many the payloads have together, counted where they are:
	// sizes that take padding for payload are refused. Append sets it where there are Payloads.
	PayloadBytes uint32
	MaxAge       uint32 // seconds that they may stay in any tier; 0: any time
	Payloads     []byte // one after the other
}

// Append implements Message.
func (m *PutRequest) Append(dst []byte) []byte {
	return appendPad(append(m.AppendHead(dst), m.Payloads...), len(m.Payloads))
}

// AppendHead appends what precedes the payloads, for writers that send these
// from where they are. A frame's body is zeros behind them, up to a multiple of 8.
func (m *PutRequest) AppendHead(dst []byte) []byte {
	n := m.PayloadBytes
	if m.Payloads != nil {
		n = uint32(len(m.Payloads))
	}
	dst = m.Chain.append(dst)
	dst = binary.LittleEndian.AppendUint32(dst, m.First)
	dst = appendArray(binary.LittleEndian.AppendUint32(dst, n), 4, m.Sizes)
	if m.MaxAge == 0 {
		return noOptions(dst)
	}
	l := beginOptions(dst, Deadline{})
	l.put32(tagMaxAge, m.MaxAge)
	return l.end()
}

// Decode implements Message.
func (m *PutRequest) Decode(body []byte) error {
	c := requestCursor(body)
	c.chain(&m.Chain)
	m.First = c.u32("first")
	m.PayloadBytes = c.u32("payload bytes")
	m.Sizes = c.numbers(4, "sizes")
	checkSizes(&c, m.Sizes, false)
	total := int64(0)
	for i := range m.Sizes.Len() {
		total += int64(m.Sizes.At(i))
	}
	if c.err == nil && total != int64(m.PayloadBytes) {
		c.fail("sizes", "%d bytes together, and %d bytes of payloads", total, m.PayloadBytes)
	}
	m.MaxAge = 0
	c.requestOptions(nil, func(tag uint16, v *cursor) bool {
		if tag != tagMaxAge {
			return false
		}
		m.MaxAge = maxAgeIn(v)
		return true
	})
	m.Payloads = c.bytes(total, "payloads")
	return c.endBody("put")
}

// GetRequest asks for the payloads of chunks First and following, inline.
type GetRequest struct {
	Chain     Chain
	First     uint32
	MaxChunks uint32   // 0 means all that follow First
	MaxBytes  uint32   // of payload; 0 means what fits a reply. The first chunk comes even if it is larger
	Deadline  Deadline // for chunks that must be promoted; not given: the configured one
}

// Append implements Message.
func (m *GetRequest) Append(dst []byte) []byte {
	dst = m.Chain.append(dst)
	dst = binary.LittleEndian.AppendUint32(dst, m.First)
	dst = binary.LittleEndian.AppendUint32(dst, m.MaxChunks)
	dst = binary.LittleEndian.AppendUint32(dst, m.MaxBytes)
	return appendDeadline(appendZero(dst, 4), m.Deadline)
}

// Decode implements Message.
func (m *GetRequest) Decode(body []byte) error {
	c := requestCursor(body)
	c.chain(&m.Chain)
	m.First, m.MaxChunks, m.MaxBytes = c.u32("first"), c.u32("max chunks"), c.u32("max bytes")
	c.zero(4, "max bytes")
	return c.endRequest("get", &m.Deadline)
}

// GetReply is the longest leading run that could be had, perhaps empty.
type GetReply struct {
	Chunks   Chunks
	Payloads []byte // one after the other
}

// Append implements Message.
func (m *GetReply) Append(dst []byte) []byte {
	return appendPad(append(m.AppendHead(dst), m.Payloads...), len(m.Payloads))
}

// AppendHead appends what precedes the payloads, for writers that send these
// from where they are.
func (m *GetReply) AppendHead(dst []byte) []byte {
	return noOptions(appendArray(dst, chunkBytes, m.Chunks))
}

// Decode implements Message.
func (m *GetReply) Decode(body []byte) error {
	c := replyCursor(body)
	m.Chunks = c.array(chunkBytes, "chunks")
	c.options(nil)
	m.Payloads = c.bytes(m.Chunks.payloadBytes(), "payloads")
	return c.end("get reply")
}
