package wire

import "encoding/binary"

// ScrubRequest reads everything on disk and deletes damaged chunks.
type ScrubRequest struct {
	BytesPerSecond uint64 // 0 means no limit
}

// Append implements Message.
func (m *ScrubRequest) Append(dst []byte) []byte {
	return noOptions(binary.LittleEndian.AppendUint64(dst, m.BytesPerSecond))
}

// Decode implements Message.
func (m *ScrubRequest) Decode(body []byte) error {
	c := requestCursor(body)
	m.BytesPerSecond = c.u64("bytes per second")
	return c.endRequest("scrub", nil)
}

// ScrubReply counts the entries that a scrub read.
type ScrubReply struct {
	Chunks uint64 // read to the end
	Bytes  uint64 // of payload
	Wrong  uint64 // of those, deleted because they did not have their checksum
	Failed uint64 // could not be read; they stay
}

// Append implements Message.
func (m *ScrubReply) Append(dst []byte) []byte {
	for _, n := range [...]uint64{m.Chunks, m.Bytes, m.Wrong, m.Failed} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	return dst
}

// Decode implements Message.
func (m *ScrubReply) Decode(body []byte) error {
	c := replyCursor(body)
	*m = ScrubReply{Chunks: c.u64("chunks"), Bytes: c.u64("bytes"), Wrong: c.u64("wrong"), Failed: c.u64("failed")}
	return c.end("scrub reply")
}
