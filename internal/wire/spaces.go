package wire

import (
	"encoding/binary"

	"github.com/kvstored/kvstored/key"
)

// SpacesRequest asks for the spaces, a page at a time.
type SpacesRequest struct {
	After key.SpaceID // the last one of the page before; zero at first
}

// Append implements Message.
func (m *SpacesRequest) Append(dst []byte) []byte {
	return noOptions(append(dst, m.After[:]...))
}

// Decode implements Message.
func (m *SpacesRequest) Decode(body []byte) error {
	c := requestCursor(body)
	copy(m.After[:], c.bytes(int64(len(m.After)), "after"))
	return c.endRequest("spaces", nil)
}

// SpaceKind says what the daemon knows of where a space comes from.
type SpaceKind uint8

// What a space may be.
const (
	SpaceUnknown SpaceKind = 0 // only its id is known: it was not opened since the daemon started
	SpaceOpened  SpaceKind = 1 // a client has, or had, it open
	SpaceFront   SpaceKind = 2 // the values of a front end
)

func (k SpaceKind) String() string { return name(spaceKinds[:], uint16(k), "space kind") }

var spaceKinds = [...]string{"unknown", "opened", "front"}

// SpaceUse is a space and its chunks by tier.
type SpaceUse struct {
	ID          key.SpaceID
	Chunks      uint64 // known, in any tier
	HotBytes    uint64 // that they occupy in DRAM
	DiskBytes   uint64 // and on disk
	Connections uint32 // that have it open
	Kind        SpaceKind
	Space       key.Space // SpaceOpened; with its SaltDigest, never its Salt
	Front       string    // SpaceFront: its name
}

// SpacesReply is a page of the spaces that have something stored or were opened
// since the daemon started, by id.
type SpacesReply struct {
	Spaces []SpaceUse
	More   bool // there are others after the last one
}

// Append implements Message.
func (m *SpacesReply) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(m.Spaces)))
	for i := range m.Spaces {
		dst = m.Spaces[i].append(dst)
	}
	dst = appendBool(dst, m.More)
	for i := range m.Spaces {
		dst = binary.LittleEndian.AppendUint64(dst, m.Spaces[i].DiskBytes)
	}
	return dst
}

func (s *SpaceUse) append(dst []byte) []byte {
	dst = append(dst, s.ID[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, s.Chunks)
	dst = binary.LittleEndian.AppendUint64(dst, s.HotBytes)
	dst = binary.LittleEndian.AppendUint32(dst, s.Connections)
	dst = append(dst, byte(s.Kind))
	switch s.Kind {
	case SpaceOpened:
		dst = appendSpace(dst, &s.Space)
	case SpaceFront:
		dst = appendStr(dst, s.Front)
	}
	return dst
}

// Decode implements Message.
func (m *SpacesReply) Decode(body []byte) error {
	c := replyCursor(body)
	*m = SpacesReply{}
	for n := c.u32("spaces"); n > 0 && c.err == nil; n-- { // each takes bytes of the body
		m.Spaces = append(m.Spaces, spaceUse(&c))
	}
	m.More = c.bool("more")
	for i := range m.Spaces { // behind the others, as what came later
		m.Spaces[i].DiskBytes = c.u64("disk bytes")
	}
	return c.end("spaces reply")
}
