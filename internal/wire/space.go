package wire

import (
	"encoding/binary"

	"github.com/kvstored/kvstored/key"
)

// appendSpace appends all fields of s in their fixed order.
func appendSpace(dst []byte, s *key.Space) []byte {
	dst = appendStr(dst, s.Model)
	dst = appendStr(dst, s.Revision)
	dst = appendStr(dst, s.LoRA)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(s.World))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(s.Worker))
	dst = appendStr(dst, s.DType)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(s.ChunkTokens))
	dst = appendStr(dst, string(s.Method))
	dst = appendStr(dst, s.Group)
	dst = appendStr(dst, s.Salt)
	dst = append(dst, s.SaltDigest[:]...)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s.Tags)))
	for _, t := range s.Tags {
		dst = appendStr(dst, t.Name)
		dst = appendStr(dst, t.Value)
	}
	return dst
}

// space reads what appendSpace wrote. Whether it is a valid space is for
// key.Space.Validate to say.
func (c *cursor) space(s *key.Space) {
	*s = key.Space{
		Model:       c.str("space model"),
		Revision:    c.str("space revision"),
		LoRA:        c.str("space lora"),
		World:       int(c.u32("space world")),
		Worker:      int(c.u32("space worker")),
		DType:       c.str("space dtype"),
		ChunkTokens: int(c.u32("space chunk tokens")),
		Method:      key.Method(c.str("space method")),
		Group:       c.str("space group"),
		Salt:        c.str("space salt"),
	}
	copy(s.SaltDigest[:], c.bytes(int64(len(s.SaltDigest)), "space salt digest"))
	n := c.u16("space tags")
	if n > key.MaxTags {
		c.fail("space tags", "%d, use at most %d", n, key.MaxTags)
		return
	}
	for range n {
		s.Tags = append(s.Tags, key.Tag{Name: c.str("space tag name"), Value: c.str("space tag value")})
	}
}

// SpaceInfo is what the daemon says about an open space.
type SpaceInfo struct {
	Handle      uint32 // names the space on this connection
	ID          key.SpaceID
	ChunkTokens uint32
}

func appendSpaceInfo(dst []byte, s SpaceInfo) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, s.Handle)
	dst = append(dst, s.ID[:]...)
	return binary.LittleEndian.AppendUint32(dst, s.ChunkTokens)
}

func (c *cursor) spaceInfo() (s SpaceInfo) {
	s.Handle = c.u32("space handle")
	copy(s.ID[:], c.bytes(int64(len(s.ID)), "space id"))
	s.ChunkTokens = c.u32("space chunk tokens")
	return s
}

func (c *cursor) spaceUse() (s SpaceUse) {
	copy(s.ID[:], c.bytes(int64(len(s.ID)), "space id"))
	s.Chunks, s.HotBytes, s.Connections = c.u64("chunks"), c.u64("DRAM bytes"), c.u32("connections")
	switch s.Kind = SpaceKind(c.u8("kind")); s.Kind { // behind others there is nothing
	case SpaceOpened:
		c.space(&s.Space)
	case SpaceFront:
		s.Front = c.str("front end")
	}
	return s
}
