package wire

import (
	"encoding/binary"

	"github.com/kvstored/kvstored/key"
)

// PurgeRequest deletes everything of a space, step by step: in every tier of
// this machine with the first one, and a page of the objects in the shared tier
// with each.
type PurgeRequest struct {
	Space key.SpaceID
	After string // Next of the reply before; "" at first
	Dry   bool   // only count
}

// Append implements Message.
func (m *PurgeRequest) Append(dst []byte) []byte {
	dst = append(dst, m.Space[:]...)
	return noOptions(appendBool(appendStr(dst, m.After), m.Dry))
}

// Decode implements Message.
func (m *PurgeRequest) Decode(body []byte) error {
	c := requestCursor(body)
	copy(m.Space[:], c.bytes(int64(len(m.Space)), "space id"))
	m.After, m.Dry = c.text("after"), c.bool("dry")
	return c.endRequest("purge", nil)
}

// PurgeReply is what one step of a purge found.
type PurgeReply struct {
	Known uint64 // chunks that this machine knew of, in any tier
	Found uint64 // objects that were in the shared tier besides
	Bytes uint64 // theirs
	Next  string // where to go on; "" = this was the last step
}

// Append implements Message.
func (m *PurgeReply) Append(dst []byte) []byte {
	for _, n := range [...]uint64{m.Known, m.Found, m.Bytes} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	return appendStr(dst, m.Next)
}

// Decode implements Message.
func (m *PurgeReply) Decode(body []byte) error {
	c := replyCursor(body)
	*m = PurgeReply{Known: c.u64("known"), Found: c.u64("found"), Bytes: c.u64("bytes"), Next: c.str("next")}
	return c.end("purge reply")
}
