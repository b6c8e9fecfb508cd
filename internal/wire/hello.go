package wire

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/kvstored/kvstored/key"
)

// Features are what a client wants and a connection gets.
type Features uint32

// The features.
const (
	FeatureArena   Features = 1 << 0 // a descriptor of the arena: read hits where they lie
	FeatureStaging Features = 1 << 1 // a descriptor of a staging window: put through it
	FeaturePushes  Features = 1 << 3 // job states as they grow, and revocations, unasked
	FeatureKeep    Features = 1 << 4 // a staging window that keeps its pages, for drivers that hold on to them
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
)

func (m PutMode) String() string { return name(putModeNames[:], uint16(m), "put mode") }

var putModeNames = [...]string{"inline", "staged"}

// HelloRequest opens a conversation. It is the first frame of a connection.
type HelloRequest struct {
	MinVersion, MaxVersion uint16
	Wants                  Features
	MaxRequest, MaxReply   uint32 // bytes of the largest bodies; 0 leaves it to the daemon
	StagingBytes           uint64 // wanted; 0 leaves it to the daemon
	Credit                 uint64 // bytes of requests sent and not answered; 0 leaves it to the daemon
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
	dst = binary.LittleEndian.AppendUint32(dst, m.MaxRequest)
	dst = binary.LittleEndian.AppendUint32(dst, m.MaxReply)
	dst = appendZero(dst, 4)
	dst = binary.LittleEndian.AppendUint64(dst, m.StagingBytes)
	dst = binary.LittleEndian.AppendUint64(dst, m.Credit)
	l := beginOptions(appendStr(dst, m.Name), Deadline{})
	if m.HasSpace {
		at := l.begin(tagSpace)
		l.dst = appendSpace(l.dst, &m.Space)
		l.finish(at)
	}
	return l.end()
}

// Decode implements Message. Unknown wants are passed over: they are wishes.
// Where the versions do not include Version only they are meaningful, because
// what follows them may look different.
func (m *HelloRequest) Decode(body []byte) error {
	c := requestCursor(body)
	*m = HelloRequest{}
	if magic := c.bytes(int64(len(Magic)), "magic"); c.err == nil && string(magic) != Magic {
		c.fail("magic", "%q is not %q: this is not the kvstored protocol", magic, Magic)
	}
	m.MinVersion, m.MaxVersion = c.u16("min version"), c.u16("max version")
	if c.err == nil && !m.Speaks(Version) {
		return nil
	}
	m.Wants = Features(c.u32("wants"))
	m.MaxRequest, m.MaxReply = c.u32("max request"), c.u32("max reply")
	c.zero(4, "max reply")
	m.StagingBytes, m.Credit = c.u64("staging bytes"), c.u64("credit")
	m.Name = c.str("name")
	return c.endWith("hello", nil, func(tag uint16, v *cursor) bool {
		if tag != tagSpace {
			return false
		}
		m.HasSpace = true
		v.space(&m.Space)
		return true
	})
}

// Speaks reports whether the client speaks version v.
func (m *HelloRequest) Speaks(v uint16) bool { return m.MinVersion <= v && v <= m.MaxVersion }

// HelloReply says what the connection got. Descriptors come with its first
// byte: the arena if Granted has FeatureArena, then the staging window if it
// has FeatureStaging.
type HelloReply struct {
	Version              uint16
	Rights               Rights
	Puts                 PutMode
	Granted              Features
	Epoch                uint64 // random for each start of the daemon
	Connection           uint64 // given to no other while the daemon runs
	ArenaBytes           uint64 // to map, 0 without FeatureArena
	StagingBytes         uint64 // to map, 0 without FeatureStaging
	Descriptors          uint32 // how many came along
	MaxPayload           uint32 // bytes of one chunk
	MaxRequest, MaxReply uint32
	Credit               uint64
	Limits               Limits
	HasSpace             bool
	Space                SpaceInfo
	Server               string // version of the daemon, for people to read
}

// Limits are the configured defaults of requests, and
// the bounds of a connection.
type Limits struct {
	LeaseMillis            uint32 // greatest age of a lease or fill that is not renewed
	PinMillis              uint32
	PrefetchMillis         uint32 // deadline of prefetches and gets
	PrefetchMicrosPer1024  uint32 // added for each 1,024 tokens that a prefetch loads
	HelloMillis            uint32
	StallMillis            uint32
	Requests               uint32 // not answered
	Jobs, Fills            uint32
	Pins, Spaces           uint32
	UserJobs               uint32 // jobs and fills of a user
	UnreadBytes            uint32
	KeptChains, KeptChunks uint32
	Warms                  uint32
	ChunkTokens            uint32 // of spaces that do not say
	SpinMicros             uint32 // for how long the daemon may poll
}

const limitFields = 18

// fields are the limits in their order on the wire.
func (l *Limits) fields() [limitFields]*uint32 {
	return [limitFields]*uint32{
		&l.LeaseMillis, &l.PinMillis, &l.PrefetchMillis, &l.PrefetchMicrosPer1024, &l.HelloMillis, &l.StallMillis,
		&l.Requests, &l.Jobs, &l.Fills, &l.Pins, &l.Spaces, &l.UserJobs, &l.UnreadBytes, &l.KeptChains, &l.KeptChunks,
		&l.Warms, &l.ChunkTokens, &l.SpinMicros,
	}
}

// Append implements Message.
func (m *HelloReply) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, m.Version)
	dst = append(dst, byte(m.Rights), byte(m.Puts))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.Granted))
	for _, v := range [...]uint64{m.Epoch, m.Connection, m.ArenaBytes, m.StagingBytes} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	for _, v := range [...]uint32{m.Descriptors, m.MaxPayload, m.MaxRequest, m.MaxReply} {
		dst = binary.LittleEndian.AppendUint32(dst, v)
	}
	dst = binary.LittleEndian.AppendUint64(dst, m.Credit)
	at := len(dst)
	dst = beginRecord(dst)
	for _, v := range m.Limits.fields() {
		dst = binary.LittleEndian.AppendUint32(dst, *v)
	}
	l := beginOptions(appendStr(endRecord(dst, at), m.Server), Deadline{})
	if m.HasSpace {
		at := l.begin(replySpace)
		l.dst = appendSpaceInfo(l.dst, m.Space)
		l.finish(at)
	}
	return l.end()
}

// Decode implements Message.
func (m *HelloReply) Decode(body []byte) error {
	c := replyCursor(body)
	*m = HelloReply{
		Version:      c.u16("version"),
		Rights:       Rights(c.u8("rights")),
		Puts:         PutMode(c.u8("put mode")),
		Granted:      Features(c.u32("granted")),
		Epoch:        c.u64("epoch"),
		Connection:   c.u64("connection"),
		ArenaBytes:   c.u64("arena bytes"),
		StagingBytes: c.u64("staging bytes"),
		Descriptors:  c.u32("descriptors"),
		MaxPayload:   c.u32("max payload"),
		MaxRequest:   c.u32("max request"),
		MaxReply:     c.u32("max reply"),
		Credit:       c.u64("credit"),
	}
	sub := c.record("limits")
	for _, v := range m.Limits.fields() {
		*v = sub.u32("limits")
	}
	c.ended(&sub, "limits")
	m.Server = c.str("server")
	c.options(func(tag uint16, v *cursor) bool {
		if tag != replySpace {
			return false
		}
		m.HasSpace, m.Space = true, v.spaceInfo()
		return true
	})
	return c.end("hello reply")
}

// AppendVersionRefusal appends the reply that refuses a hello because of its
// version. It is the same in all versions.
func AppendVersionRefusal(dst []byte, id uint64, text string) []byte {
	text = text[:min(len(text), 1<<10)]
	dst = Header{BodyBytes: uint32(2 + len(text)), Kind: KindReply, Op: OpHello, Code: CodeVersion, ID: id}.Append(dst)
	return append(binary.LittleEndian.AppendUint16(dst, uint16(len(text))), text...)
}

// VersionRefusal is the text of such a reply.
func VersionRefusal(body []byte) string {
	if len(body) < 2 {
		return ""
	}
	text := body[2:]
	text = text[:min(len(text), int(binary.LittleEndian.Uint16(body)))]
	if !utf8.Valid(text) {
		return ""
	}
	return string(text)
}

// OpenSpaceRequest asks for a handle. A connection may open many; opening the
// same space again answers the same handle.
type OpenSpaceRequest struct{ Space key.Space }

// Append implements Message.
func (m *OpenSpaceRequest) Append(dst []byte) []byte {
	return noOptions(appendSpaceRecord(dst, &m.Space))
}

// Decode implements Message.
func (m *OpenSpaceRequest) Decode(body []byte) error {
	c := requestCursor(body)
	spaceRecord(&c, &m.Space)
	return c.endRequest("open_space", nil)
}

// OpenSpaceReply is the handle.
type OpenSpaceReply struct{ Space SpaceInfo }

// Append implements Message.
func (m *OpenSpaceReply) Append(dst []byte) []byte {
	return noOptions(appendSpaceInfo(dst, m.Space))
}

// Decode implements Message.
func (m *OpenSpaceReply) Decode(body []byte) error {
	c := replyCursor(body)
	m.Space = c.spaceInfo()
	return c.endReply("open_space reply")
}
