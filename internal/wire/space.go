package wire

import (
	"encoding/binary"

	"github.com/kvstored/kvstored/key"
)

// appendSpace appends all fields of s in their fixed order.
func appendSpace(dst []byte, s *key.Space) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(s.World))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(s.Worker))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(s.ChunkTokens))
	dst = appendZero(dst, 4)
	dst = append(dst, s.SaltDigest[:]...)
	for _, text := range [...]string{s.Model, s.Revision, s.LoRA, s.DType, string(s.Method), s.Group, s.Salt} {
		dst = appendStr(dst, text)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s.Tags)))
	dst = appendZero(dst, 4)
	for _, t := range s.Tags {
		dst = appendPair(dst, t.Name, t.Value)
	}
	return dst
}

// appendSpaceRecord appends s as a record.
func appendSpaceRecord(dst []byte, s *key.Space) []byte {
	at := len(dst)
	return endRecord(appendSpace(beginRecord(dst), s), at)
}

// space reads what appendSpace wrote. Whether it is a valid space is for
// key.Space.Validate to say.
func (c *cursor) space(s *key.Space) {
	*s = key.Space{
		World:       int(c.u32("space world")),
		Worker:      int(c.u32("space worker")),
		ChunkTokens: int(c.u32("space chunk tokens")),
	}
	c.zero(4, "space")
	copy(s.SaltDigest[:], c.bytes(int64(len(s.SaltDigest)), "space salt digest"))
	s.Model, s.Revision = c.str("space model"), c.str("space revision")
	s.LoRA, s.DType = c.str("space lora"), c.str("space dtype")
	s.Method, s.Group = key.Method(c.str("space method")), c.str("space group")
	s.Salt = c.str("space salt")
	c.listed("space tags", func(sub *cursor) {
		if sub.strict && len(s.Tags) == key.MaxTags { // a newer daemon may have more
			sub.fail("space tags", "use at most %d", key.MaxTags)
			return
		}
		s.Tags = append(s.Tags, key.Tag{Name: sub.str("space tag name"), Value: sub.text("space tag value")})
	})
}

// spaceRecord reads a space that is a record.
func spaceRecord(c *cursor, s *key.Space) {
	sub := c.record("space")
	sub.space(s)
	c.ended(&sub, "space")
}

// SpaceInfo is what the daemon says about an open space.
type SpaceInfo struct {
	Handle      uint32 // names the space on this connection; the first is 0
	ChunkTokens uint32
	ID          key.SpaceID
}

func appendSpaceInfo(dst []byte, s SpaceInfo) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, s.Handle)
	dst = binary.LittleEndian.AppendUint32(dst, s.ChunkTokens)
	return append(dst, s.ID[:]...)
}

func (c *cursor) spaceInfo() (s SpaceInfo) {
	s.Handle, s.ChunkTokens = c.u32("space handle"), c.u32("space chunk tokens")
	copy(s.ID[:], c.bytes(int64(len(s.ID)), "space id"))
	return s
}
