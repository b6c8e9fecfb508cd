package wire

import "encoding/binary"

// RebuildRequest begins a rebuild of the disk tier's index, or asks how far the
// last one is.
type RebuildRequest struct{ Begin bool }

// Append implements Message.
func (m *RebuildRequest) Append(dst []byte) []byte {
	return noOptions(appendBool(dst, m.Begin))
}

// Decode implements Message.
func (m *RebuildRequest) Decode(body []byte) error {
	c := requestCursor(body)
	m.Begin = c.bool("begin")
	return c.endRequest("rebuild", nil)
}

// RebuildReply is what a rebuild has done so far.
type RebuildReply struct {
	Running    bool
	Bytes      uint64 // of the segment files, looked at
	TotalBytes uint64 // of the segment files
	Headers    uint64 // of payloads, read
	Restored   uint64 // chunks that the database did not have
	Dropped    uint64 // chunks that are wrong, or that it had and that were freed
	Resealed   uint64 // headers that were damaged, written anew
	Micros     uint64 // since its begin, or what it took
}

// Append implements Message.
func (m *RebuildReply) Append(dst []byte) []byte {
	dst = appendBool(dst, m.Running)
	for _, n := range [...]uint64{m.Bytes, m.TotalBytes, m.Headers, m.Restored, m.Dropped, m.Resealed, m.Micros} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	return dst
}

// Decode implements Message.
func (m *RebuildReply) Decode(body []byte) error {
	c := replyCursor(body)
	*m = RebuildReply{
		Running: c.bool("running"), Bytes: c.u64("bytes"), TotalBytes: c.u64("total bytes"), Headers: c.u64("headers"),
		Restored: c.u64("restored"), Dropped: c.u64("dropped"), Resealed: c.u64("resealed"), Micros: c.u64("micros"),
	}
	return c.end("rebuild reply")
}
