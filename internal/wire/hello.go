package wire

import (
	"encoding/binary"

	"github.com/kvstored/kvstored/key"
)

// Features are what a client wants and a connection gets.
type Features uint32

// The features.
const (
	FeatureArena   Features = 1 << 0 // a descriptor of the arena: read hits where they lie
	FeatureStaging Features = 1 << 1 // a descriptor of a staging window: put through it
	FeatureDirect  Features = 1 << 2 // a writable arena: put into it
	FeaturePushes  Features = 1 << 3 // job states as they grow, unasked
)

// Rights are what the daemon lets the peer's uid do.
type Rights uint8

// The rights.
const (
	RightRead  Rights = 1 << 0
	RightWrite Rights = 1 << 1
	RightAdmin Rights = 1 << 2 // delete a space
)

// PutMode says how payloads get into the arena on a connection.
type PutMode uint8

// The modes.
const (
	PutInline PutMode = 0 // put only
	PutStaged PutMode = 1 // reserve answers offsets in the staging window
	PutDirect PutMode = 2 // reserve answers offsets in the arena
)

func (m PutMode) String() string { return name(putModeNames[:], uint16(m), "put mode") }

var putModeNames = [...]string{"inline", "staged", "direct"}

// HelloRequest opens a conversation. It is the first frame of a connection.
type HelloRequest struct {
	MinVersion, MaxVersion uint16
	Wants                  Features
	StagingBytes           uint64 // wanted; 0 leaves it to the daemon
	Name                   string // of the client, for people to read
	HasSpace               bool   // open Space at once
	Space                  key.Space
}

// Append implements Message.
func (m *HelloRequest) Append(dst []byte) []byte {
	dst = append(dst, Magic...)
	dst = binary.LittleEndian.AppendUint16(dst, m.MinVersion)
	dst = binary.LittleEndian.AppendUint16(dst, m.MaxVersion)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.Wants))
	dst = binary.LittleEndian.AppendUint64(dst, m.StagingBytes)
	dst = appendStr(dst, m.Name)
	dst = appendBool(dst, m.HasSpace)
	if m.HasSpace {
		dst = appendSpace(dst, &m.Space)
	}
	return appendOptions(dst)
}

// Decode implements Message. Unknown wants are passed over: they are wishes.
// Where the versions do not include Version only they are meaningful, because
// what follows them may look different.
func (m *HelloRequest) Decode(body []byte) error {
	c := cursor{b: body}
	*m = HelloRequest{}
	if magic := c.bytes(int64(len(Magic)), "magic"); c.err == nil && string(magic) != Magic {
		c.fail("magic", "%q is not %q: this is not the kvstored protocol", magic, Magic)
	}
	m.MinVersion, m.MaxVersion = c.u16("min version"), c.u16("max version")
	if c.err == nil && !m.Speaks(Version) {
		return nil
	}
	m.Wants = Features(c.u32("wants"))
	m.StagingBytes = c.u64("staging bytes")
	m.Name = c.str("name")
	if m.HasSpace = c.bool("has space"); m.HasSpace {
		c.space(&m.Space)
	}
	return c.endRequest("hello")
}

// Speaks reports whether the client speaks version v.
func (m *HelloRequest) Speaks(v uint16) bool { return m.MinVersion <= v && v <= m.MaxVersion }

// HelloReply says what the connection got. Descriptors come with its first
// byte: the arena if Granted has FeatureArena, then the staging window if it
// has FeatureStaging.
type HelloReply struct {
	Version         uint16
	Rights          Rights
	Puts            PutMode
	Granted         Features
	Epoch           uint64 // random for each start of the daemon
	ArenaBytes      uint64 // to map, 0 without FeatureArena
	StagingBytes    uint64 // to map, 0 without FeatureStaging
	Descriptors     uint8  // how many came along
	MaxBodyBytes    uint32
	MaxPayloadBytes uint32
	LeaseMillis     uint32 // greatest age of a lease that is not renewed
	HasSpace        bool
	Space           SpaceInfo
	Server          string // version of the daemon, for people to read
}

// Append implements Message.
func (m *HelloReply) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, m.Version)
	dst = append(dst, byte(m.Rights), byte(m.Puts))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.Granted))
	dst = binary.LittleEndian.AppendUint64(dst, m.Epoch)
	dst = binary.LittleEndian.AppendUint64(dst, m.ArenaBytes)
	dst = binary.LittleEndian.AppendUint64(dst, m.StagingBytes)
	dst = append(dst, m.Descriptors)
	dst = binary.LittleEndian.AppendUint32(dst, m.MaxBodyBytes)
	dst = binary.LittleEndian.AppendUint32(dst, m.MaxPayloadBytes)
	dst = binary.LittleEndian.AppendUint32(dst, m.LeaseMillis)
	dst = appendBool(dst, m.HasSpace)
	if m.HasSpace {
		dst = appendSpaceInfo(dst, m.Space)
	}
	return appendStr(dst, m.Server)
}

// Decode implements Message.
func (m *HelloReply) Decode(body []byte) error {
	c := cursor{b: body}
	*m = HelloReply{
		Version:         c.u16("version"),
		Rights:          Rights(c.u8("rights")),
		Puts:            PutMode(c.u8("put mode")),
		Granted:         Features(c.u32("granted")),
		Epoch:           c.u64("epoch"),
		ArenaBytes:      c.u64("arena bytes"),
		StagingBytes:    c.u64("staging bytes"),
		Descriptors:     c.u8("descriptors"),
		MaxBodyBytes:    c.u32("max body bytes"),
		MaxPayloadBytes: c.u32("max payload bytes"),
		LeaseMillis:     c.u32("lease millis"),
		HasSpace:        c.bool("has space"),
	}
	if m.HasSpace {
		m.Space = c.spaceInfo()
	}
	m.Server = c.str("server")
	return c.end("hello reply")
}

// OpenSpaceRequest asks for a handle. A connection may open many; opening the
// same space again answers the same handle.
type OpenSpaceRequest struct{ Space key.Space }

// Append implements Message.
func (m *OpenSpaceRequest) Append(dst []byte) []byte {
	return appendOptions(appendSpace(dst, &m.Space))
}

// Decode implements Message.
func (m *OpenSpaceRequest) Decode(body []byte) error {
	c := cursor{b: body}
	c.space(&m.Space)
	return c.endRequest("open_space")
}

// OpenSpaceReply is the handle.
type OpenSpaceReply struct{ Space SpaceInfo }

// Append implements Message.
func (m *OpenSpaceReply) Append(dst []byte) []byte { return appendSpaceInfo(dst, m.Space) }

// Decode implements Message.
func (m *OpenSpaceReply) Decode(body []byte) error {
	c := cursor{b: body}
	m.Space = c.spaceInfo()
	return c.end("open_space reply")
}
