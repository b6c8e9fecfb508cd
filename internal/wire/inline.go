package wire

import "encoding/binary"

// PutRequest stores payloads that come with it: chunks First and following.
type PutRequest struct {
	Chain    Chain
	First    uint32
	Sizes    U32s   // payload bytes of each chunk
	Payloads []byte // one after the other
}

// Append implements Message.
func (m *PutRequest) Append(dst []byte) []byte {
	dst = append(m.AppendHead(dst), m.Payloads...)
	return m.AppendTail(dst)
}

// AppendHead appends what precedes the payloads, for writers that send these
// from where they are.
func (m *PutRequest) AppendHead(dst []byte) []byte {
	dst = m.Chain.append(dst)
	dst = binary.LittleEndian.AppendUint32(dst, m.First)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.Sizes.Len()))
	return append(dst, m.Sizes...)
}

// AppendTail appends what follows the payloads.
func (m *PutRequest) AppendTail(dst []byte) []byte { return appendOptions(dst) }

// Decode implements Message.
func (m *PutRequest) Decode(body []byte) error {
	c := cursor{b: body}
	c.chain(&m.Chain)
	m.First = c.u32("first")
	m.Sizes = c.list(c.u32("sizes"), 4, "sizes")
	c.sizes(m.Sizes)
	total := int64(0)
	for i := range m.Sizes.Len() {
		total += int64(m.Sizes.At(i))
	}
	m.Payloads = c.bytes(total, "payloads")
	return c.endRequest("put")
}

// GetRequest asks for the payloads of chunks First and following, inline.
type GetRequest struct {
	Chain          Chain
	First          uint32
	MaxChunks      uint32 // 0 means all that follow First
	MaxBytes       uint32 // of payload; 0 means what fits a frame. The first chunk comes even if it is larger
	DeadlineMillis uint32 // for chunks that must be promoted; 0 means the configured one
}

// Append implements Message.
func (m *GetRequest) Append(dst []byte) []byte {
	dst = m.Chain.append(dst)
	dst = binary.LittleEndian.AppendUint32(dst, m.First)
	dst = binary.LittleEndian.AppendUint32(dst, m.MaxChunks)
	dst = binary.LittleEndian.AppendUint32(dst, m.MaxBytes)
	return appendOptions(binary.LittleEndian.AppendUint32(dst, m.DeadlineMillis))
}

// Decode implements Message.
func (m *GetRequest) Decode(body []byte) error {
	c := cursor{b: body}
	c.chain(&m.Chain)
	m.First, m.MaxChunks = c.u32("first"), c.u32("max chunks")
	m.MaxBytes, m.DeadlineMillis = c.u32("max bytes"), c.u32("deadline")
	return c.endRequest("get")
}

// GetReply is the longest leading run that could be had, perhaps empty.
type GetReply struct {
	Chunks   Chunks
	Payloads []byte // one after the other
}

// Append implements Message.
func (m *GetReply) Append(dst []byte) []byte {
	return append(m.AppendHead(dst), m.Payloads...)
}

// AppendHead appends what precedes the payloads, for writers that send these
// from where they are.
func (m *GetReply) AppendHead(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.Chunks.Len()))
	return append(dst, m.Chunks...)
}

// Decode implements Message.
func (m *GetReply) Decode(body []byte) error {
	c := cursor{b: body}
	m.Chunks = c.list(c.u32("chunks"), chunkBytes, "chunks")
	m.Payloads = c.bytes(m.Chunks.payloadBytes(), "payloads")
	return c.end("get reply")
}
