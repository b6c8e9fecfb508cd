package wire

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/socket"
)

// link is what carries the bytes of a Conn: a socket, or a net.Conn whose other end is in this
// process, as package pipe has it. The receiver of files owns descriptors of its own.
type link interface {
	// Receive reads into p. Without block it returns ErrWouldBlock rather
	// than sleep.
	Receive(p []byte, block bool) (int, error)
	TryWrite(p []byte) (int, error) // what there is room for, perhaps nothing
	// ReadFiles and WriteFiles move bytes, and files with the first of them.
	ReadFiles(p []byte) (int, []*os.File, error)
	WriteFiles(p []byte, files []*os.File) (int, error)
	Shut() // ends both directions
}

func newLink(nc net.Conn) (link, error) {
	if l, ok := nc.(link); ok {
		return l, nil
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

// socketLink is a link over a Unix socket. It polls for a while before a read sleeps.
type socketLink struct {
	*socket.Reader
	raw  syscall.RawConn
	send func(fd uintptr) bool // made once, so that a call allocates nothing

	// Of the write under way:
	p   []byte
	n   int
	err error
}

func newSocket(raw syscall.RawConn) *socketLink {
	s := &socketLink{Reader: socket.NewReader(raw), raw: raw}
	s.send = s.tryWrite
	return s
}

// TryWrite implements link.
func (s *socketLink) TryWrite(p []byte) (int, error) {
	s.p, s.n, s.err = p, 0, nil
	err := s.raw.Write(s.send)
	s.p = nil
	return s.n, cmp.Or(err, s.err)
}

func (s *socketLink) tryWrite(fd uintptr) bool {
	for s.n < len(s.p) {
		n, err := syscall.Write(int(fd), s.p[s.n:])
		switch err {
		case nil:
			s.n += n
		case syscall.EINTR:
		case syscall.EAGAIN:
			return true
		default:
			s.err = os.NewSyscallError("write", err)
			return true
		}
	}
	return true
}

// Shut implements link.
func (s *socketLink) Shut() {
	_ = s.raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) }) // they fail where it has ended
}

// MaxFiles is the largest number of descriptors that come with one frame. The
// protocol sends two; the rest is room to grow.
const MaxFiles = 8

// WriteFiles sends p, as far as the socket takes it at once, with descriptors of the
// files beside its first byte.
func (s *socketLink) WriteFiles(p []byte, files []*os.File) (n int, err error) {
	rights, err := socket.Rights(files)
	if err != nil {
		return 0, err
	}
	var failed error
	err = s.raw.Write(func(fd uintptr) bool {
		for failed = syscall.EINTR; failed == syscall.EINTR; {
			n, failed = unix.SendmsgN(int(fd), p, rights, nil, 0)
		}
		return failed != syscall.EAGAIN
	})
	runtime.KeepAlive(files)
	if err == nil && failed != nil {
		err = os.NewSyscallError("sendmsg", failed)
	}
	return n, err
}

// ReadFiles reads bytes and the descriptors that came with them. They are
// closed on exec; the caller owns them, also beside an error.
func (s *socketLink) ReadFiles(p []byte) (int, []*os.File, error) {
	oob := make([]byte, syscall.CmsgSpace(4*MaxFiles))
	var n, oobn, flags int
	var failed error
	err := s.raw.Read(func(fd uintptr) bool {
		for failed = syscall.EINTR; failed == syscall.EINTR; {
			n, oobn, flags, _, failed = unix.Recvmsg(int(fd), p, oob, unix.MSG_CMSG_CLOEXEC)
		}
		return failed != syscall.EAGAIN
	})
	if err == nil && failed != nil {
		err = os.NewSyscallError("recvmsg", failed)
	}
	if err != nil {
		return 0, nil, err
	}
	files, err := socket.Files(oob[:oobn], "kvstored")
	switch {
	case err != nil:
		err = fmt.Errorf("%w: control message: %w", ErrMalformed, err)
	case flags&syscall.MSG_CTRUNC != 0:
		err = fmt.Errorf("%w: more than %d descriptors, or no room for them in this process: raise its limit on open files", ErrMalformed, MaxFiles)
	case n == 0:
		err = io.EOF
	}
	return n, files, err
}
