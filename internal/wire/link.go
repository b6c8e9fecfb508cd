package wire

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"
)

// link is what carries the bytes of a Conn: a socket, or Local.
type link interface {
	// read reads into p. Without block it returns ErrWouldBlock rather
	// than sleep.
	read(p []byte, block bool) (int, error)
	writer
}

// writer is all of a link but its reads of bytes alone.
type writer interface {
	TryWrite(p []byte) (int, error) // what there is room for, perhaps nothing
	// ReadFiles and WriteFiles move bytes, and files with the first of them.
	ReadFiles(p []byte) (int, []*os.File, error)
	WriteFiles(p []byte, files []*os.File) (int, error)
	Shut() // ends both directions
}

// Local is a net.Conn whose other end is in this process, as package pipe has it. The
// receiver of files owns descriptors of its own.
type Local interface {
	TryRead(p []byte) (int, error) // EAGAIN: nothing is there
	writer
}

func newLink(nc net.Conn) (link, error) {
	if l, ok := nc.(Local); ok {
		return local{nc, l}, nil
	}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("a connection of %T is none of the system's", nc)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	return newSocket(raw), nil
}

// local is a link within the process. It never polls.
type local struct {
	nc net.Conn
	Local
}

func (l local) read(p []byte, block bool) (n int, err error) {
	if block {
		n, err = l.nc.Read(p)
	} else {
		n, err = l.TryRead(p)
	}
	if err == syscall.EAGAIN {
		err = ErrWouldBlock
	}
	return n, err
}

// TierCount is the number of tiers that matches and states count apart.
const TierCount = 3

// String names the tiers, as disk or cpu+disk.
func (t Tiers) String() string {
	var names []string
	for i, name := range [...]string{"cpu", "disk", "remote"} {
		if t&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "+")
}

const countBytes = 16

// TierCounts is a Count for cpu, disk and remote.
type TierCounts [TierCount]Count

func appendTierCounts(dst []byte, ts *TierCounts) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, TierCount)
	dst = binary.LittleEndian.AppendUint32(dst, countBytes)
	for _, t := range ts {
		dst = appendCount(dst, &t)
	}
	return dst
}

// tierCounts reads as many as there are: missing tiers count nothing, tiers
// of a newer peer are passed over.
func (c *cursor) tierCounts() (ts TierCounts) {
	sub := cursor{b: c.array(countBytes, "tiers"), err: c.err}
	for i := range ts {
		if sub.left() > 0 {
			readCount(&sub, &ts[i])
		}
	}
	return ts
}

// Append implements Message.
func (m *PutRequest) Append(dst []byte) []byte {
	return appendPad(append(m.AppendHead(dst), m.Payloads...), len(m.Payloads))
}

// AppendHead appends what precedes the payloads, for writers that send these
// from where they are. A frame's body is zeros behind them, up to a multiple of 8.
func (m *PutRequest) AppendHead(dst []byte) []byte {
	head := *m
	if m.Payloads != nil {
		head.PayloadBytes = uint32(len(m.Payloads))
	}
	return appendPutRequest(dst, &head)
}

// Decode implements Message.
func (m *PutRequest) Decode(body []byte) error {
	c := requestCursor(body)
	readPutRequest(&c, m)
	checkSizes(&c, m.Sizes, false)
	total := int64(0)
	for i := range m.Sizes.Len() {
		total += int64(m.Sizes.At(i))
	}
	if c.err == nil && total != int64(m.PayloadBytes) {
		c.fail("sizes", "%d bytes together, and %d bytes of payloads", total, m.PayloadBytes)
	}
	m.Payloads = c.bytes(total, "payloads")
	return c.endBody("put")
}

// Append implements Message.
func (m *GetReply) Append(dst []byte) []byte {
	return appendPad(append(appendGetReply(dst, m), m.Payloads...), len(m.Payloads))
}

// Decode implements Message.
func (m *GetReply) Decode(body []byte) error {
	c := replyCursor(body)
	readGetReply(&c, m)
	m.Payloads = c.bytes(m.Chunks.payloadBytes(), "payloads")
	return c.end("get reply")
}

// Decode implements Message. Unknown wants are passed over: they are wishes.
// Where the versions do not include Version only they are meaningful, because
// what follows them may look different.
func (m *HelloRequest) Decode(body []byte) error {
	head := requestCursor(body)
	head.magic()
	*m = HelloRequest{MinVersion: head.u16("min version"), MaxVersion: head.u16("max version")}
	if head.err == nil && !m.Speaks(Version) {
		return nil
	}
	c := requestCursor(body)
	readHelloRequest(&c, m)
	return c.endBody("hello")
}

func (c *cursor) magic() {
	if magic := c.bytes(int64(len(Magic)), "magic"); c.err == nil && string(magic) != Magic {
		c.fail("magic", "%q is not %q: this is not the kvstored protocol", magic, Magic)
	}
}

// Speaks reports whether the client speaks version v.
func (m *HelloRequest) Speaks(v uint16) bool { return m.MinVersion <= v && v <= m.MaxVersion }

// appendVersionRefusal appends the reply that refuses a hello because of its
// version. It is the same in all versions.
func appendVersionRefusal(dst []byte, id uint64, text string) []byte {
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
