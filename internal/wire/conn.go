package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// firstBytes is the receive buffer until more arrives than fits: most hellos and
	// requests do. Peers that connect and leave, or send garbage, cost no more.
	firstBytes = 4 << 10
	// readBytes is the receive buffer of a connection after that: about what a
	// Unix socket hands over at once, and room for many pipelined frames.
	readBytes = 64 << 10
	// keepBytes is the largest receive buffer kept when it runs empty, so
	// that one large frame does not cost its size for ever.
	keepBytes = 1 << 20
)

// ErrFrameTooLarge says that a header claims a body larger than the limit.
// Nothing can be read after it.
var ErrFrameTooLarge = errors.New("frame too large")

// ErrStalled says that a frame has begun and too little more of it has come: less
// than stallBytes, or the rest if that is less, in the time that SetStall gives.
var ErrStalled = errors.New("the frame has stalled")

// stallBytes is how much of a frame has to come within each stall.
const stallBytes = 64 << 10

// Meter is told of the memory that a connection takes beyond the receive buffer
// of a quiet one.
type Meter interface {
	// Charge is called before n bytes are allocated; after an error they are not.
	Charge(n int64) error
	// Release is called after n bytes were let go of.
	Release(n int64)
}

// ErrWouldBlock says that a Try call found nothing to read.
var ErrWouldBlock error = syscall.EAGAIN

// Conn carries frames over a Unix socket. One goroutine at a time may read and
// one may write; Close and the deadlines may be set from any.
type Conn struct {
	nc      net.Conn
	link    link
	maxBody uint32
	meter   Meter // nil: of no interest
	stall   stall

	buf  []byte // received bytes, buf[head:tail] not yet handed out
	head int
	tail int
}

// NewConn takes over nc, which is a Unix socket, or a link by itself. The limit on bodies is
// MaxHelloBytes until SetMaxBody raises it.
func NewConn(nc net.Conn) (*Conn, error) {
	l, err := newLink(nc)
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	return &Conn{nc: nc, link: l, maxBody: MaxHelloBytes, buf: make([]byte, firstBytes)}, nil
}

// SetMaxBody sets the limit on bodies that are read. Only the reader may.
func (c *Conn) SetMaxBody(n uint32) { c.maxBody = n }

// SetMeter has the receive buffer charged to m, as far as it has grown already. The
// error is that of Charge. Only the reader may.
func (c *Conn) SetMeter(m Meter) error {
	if err := m.Charge(beyond(len(c.buf))); err != nil {
		return err
	}
	c.meter = m
	return nil
}

// SetStall sets how long a frame that has begun may make too little progress
// before ReadFrame returns ErrStalled; 0 = for ever. Between frames a peer may
// rest. Only the reader may. SetReadDeadline is the connection's own from then
// on, see Interrupt.
func (c *Conn) SetStall(d time.Duration) { c.stall.after = d }

// Interrupt makes a read under way, and all after it, return
// os.ErrDeadlineExceeded once nothing more is there.
func (c *Conn) Interrupt() {
	c.stall.interrupted.Store(true)
	_ = c.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed socket, as reads will
}

// Close closes the socket; a read or write under way returns.
func (c *Conn) Close() error { return c.nc.Close() }

// Shut ends both directions: reads and writes under way and later see the end.
func (c *Conn) Shut() { c.link.Shut() }

// SetReadDeadline makes a blocking read return os.ErrDeadlineExceeded. What
// was received of a frame stays for the next read.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.nc.SetReadDeadline(t) }

// SetWriteDeadline is SetReadDeadline for writes.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.nc.SetWriteDeadline(t) }

// NetConn is the connection that NewConn took over, for options and credentials.
func (c *Conn) NetConn() net.Conn { return c.nc }

// Buffered reports whether ReadFrame would return a frame, or an error about
// one, without reading from the socket.
func (c *Conn) Buffered() bool {
	_, _, ok, err := c.peek()
	return ok || err != nil
}

// ReadFrame returns the next frame, waiting for it. The body is valid until
// the next read. With an error the header is that of the frame that has begun, if
// it is there. The end of the stream is io.EOF between frames and
// io.ErrUnexpectedEOF within one.
func (c *Conn) ReadFrame() (Header, []byte, error) { return c.read(true, nil) }

// TryReadFrame is ReadFrame, but it never sleeps: if no frame is complete
// after a poll it returns ErrWouldBlock.
func (c *Conn) TryReadFrame() (Header, []byte, error) { return c.read(false, nil) }

func (c *Conn) read(block bool, files *[]*os.File) (Header, []byte, error) {
	for {
		h, body, ok, err := c.peek()
		if err != nil {
			return h, nil, err
		}
		if ok {
			c.head += HeaderBytes + len(body)
			c.stall.frames++
			return h, body, nil
		}
		if c.stall.after > 0 && c.head < c.tail {
			c.arm()
		}
		if err := c.receive(h, block, files); err != nil {
			if err = c.struck(err); err == nil {
				continue
			}
			return h, nil, err
		}
	}
}

// Peek waits for the next n bytes, at most HeaderBytes, and leaves them to be
// read. They are valid until the next read. The end of the stream is as of
// ReadFrame.
func (c *Conn) Peek(n int) ([]byte, error) {
	for c.tail-c.head < n {
		if err := c.receive(Header{}, true, nil); err != nil {
			return nil, err
		}
	}
	return c.buf[c.head : c.head+n : c.head+n], nil
}

// receive reads once, more of the frame that h starts, and the files with it unless nil.
func (c *Conn) receive(h Header, block bool, files *[]*os.File) error {
	if err := c.makeRoom(h); err != nil {
		return err
	}
	var n int
	var err error
	if files == nil {
		n, err = c.link.Receive(c.buf[c.tail:], block)
	} else {
		var got []*os.File
		n, got, err = c.link.ReadFiles(c.buf[c.tail:])
		if *files = append(*files, got...); err == nil && len(*files) > MaxFiles {
			err = fmt.Errorf("%w: more than %d descriptors", ErrMalformed, MaxFiles)
		}
	}
	c.tail += n
	c.stall.received += int64(n)
	return c.cutShort(err)
}

// cutShort tells the end of the stream within a frame from that between two.
func (c *Conn) cutShort(err error) error {
	if err == io.EOF && c.head < c.tail {
		return io.ErrUnexpectedEOF
	}
	return err
}

// peek looks at the first buffered frame. ok is false while it is incomplete;
// h is zero while not even the header is there.
func (c *Conn) peek() (h Header, body []byte, ok bool, err error) {
	b := c.buf[c.head:c.tail]
	if len(b) < HeaderBytes {
		return Header{}, nil, false, nil
	}
	h = DecodeHeader(b)
	if h.BodyBytes > c.maxBody {
		return h, nil, false, fmt.Errorf("%w: %s %s of %d bytes, the limit is %d", ErrFrameTooLarge, h.Op, h.Kind, h.BodyBytes, c.maxBody)
	}
	if b = b[HeaderBytes:]; len(b) < int(h.BodyBytes) {
		return h, nil, false, nil
	}
	return h, b[:h.BodyBytes:h.BodyBytes], true, nil
}

// makeRoom makes the buffer have room behind tail for more of the frame that h
// starts. It grows with the bytes that arrived, never to the claimed length: a
// peer has to send a large body to make us hold one.
func (c *Conn) makeRoom(h Header) error {
	if c.head == c.tail {
		c.reset()
	}
	if c.tail < len(c.buf) && (c.head == 0 || HeaderBytes+int(h.BodyBytes) <= len(c.buf)-c.head) {
		return nil
	}
	have := c.tail - c.head
	to := c.buf
	switch {
	case have == len(c.buf):
		n := HeaderBytes + min(max(2*have, readBytes), int(h.BodyBytes))
		if c.meter != nil {
			if err := c.meter.Charge(beyond(n)); err != nil {
				return err
			}
		}
		to = make([]byte, n)
	case c.tail == len(c.buf) && len(c.buf) < readBytes: // more was waiting
		to = make([]byte, readBytes)
	}
	copy(to, c.buf[c.head:c.tail])
	if c.meter != nil && have == len(c.buf) {
		c.meter.Release(beyond(have))
	}
	c.buf, c.head, c.tail = to, 0, have
	return nil
}

// reset begins anew with an empty buffer, of the size of a quiet connection where it was
// a large one, or where a read has filled a small one: more was waiting then.
func (c *Conn) reset() {
	filled := c.tail == len(c.buf)
	c.head, c.tail = 0, 0
	if large := len(c.buf) > keepBytes; !large && (!filled || len(c.buf) >= readBytes) {
		return
	}
	if c.meter != nil {
		c.meter.Release(beyond(len(c.buf)))
	}
	c.buf = make([]byte, readBytes)
}

// beyond is what a receive buffer of n bytes takes more than that of a quiet
// connection.
func beyond(n int) int64 { return int64(max(0, n-readBytes)) }

// Write sends p whole, waiting while the socket is full.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.TryWrite(p)
	if err != nil || n == len(p) {
		return n, err
	}
	m, err := c.nc.Write(p[n:])
	return n + m, err
}

// TryWrite sends what the socket takes at once, perhaps nothing.
func (c *Conn) TryWrite(p []byte) (int, error) { return c.link.TryWrite(p) }

// WriteFiles sends p whole, with descriptors of the files beside its first byte.
func (c *Conn) WriteFiles(p []byte, files ...*os.File) error {
	if len(files) == 0 {
		_, err := c.Write(p)
		return err
	}
	n, err := c.link.WriteFiles(p, files)
	if err == nil && n < len(p) {
		_, err = c.Write(p[n:])
	}
	return err
}

// ReadFrameFiles is ReadFrame for a frame that may bring descriptors with its
// first byte. The caller owns the files, also beside an error.
func (c *Conn) ReadFrameFiles() (h Header, body []byte, files []*os.File, err error) {
	h, body, err = c.read(true, &files)
	return h, body, files, err
}

// stall is the watch over the progress of the frame that is being received. It
// sets the read deadline when a frame is incomplete and none is set, and leaves
// it when the frame ends: a deadline that strikes later is set anew, or dropped
// between frames. So a connection sets one deadline in a stall at most, and none
// while its frames come whole.
type stall struct {
	after       time.Duration // 0: there is no watch
	frames      uint64        // read so far
	received    int64         // bytes, in all
	armed       bool          // the deadline is set
	frame       uint64        // frames then
	mark        int64         // received then
	interrupted atomic.Bool
}

// arm sets the deadline for the frame that is incomplete, unless one is set.
func (c *Conn) arm() {
	s := &c.stall
	if s.armed {
		return
	}
	s.armed, s.frame, s.mark = true, s.frames, s.received
	c.deadline(time.Now().Add(s.after))
}

// deadline sets the read deadline, unless reads are to end.
func (c *Conn) deadline(at time.Time) {
	_ = c.SetReadDeadline(at) // fails only on a closed socket, as the read will
	if c.stall.interrupted.Load() {
		c.Interrupt()
	}
}

// struck is what the error of a read comes to: nil where a deadline has struck
// and the peer may go on.
func (c *Conn) struck(err error) error {
	s := &c.stall
	if !s.armed || !errors.Is(err, os.ErrDeadlineExceeded) || s.interrupted.Load() {
		return err
	}
	s.armed = false
	c.deadline(time.Time{})
	if c.head < c.tail && s.frame == s.frames && s.received-s.mark < stallBytes {
		return ErrStalled
	}
	return nil
}

const (
	// HeaderBytes is the length of the header before every body.
	HeaderBytes = 16
	// MaxPayloadBytes is the largest payload of one chunk.
	MaxPayloadBytes = 64 << 20
	// MaxBodyBytes is the largest body of a frame after hello that may be agreed on:
	// one payload of the largest size sent inline, and 8 MiB for the chain before it,
	// which is a prompt of 2 million tokens. A longer prompt is sent as hashes.
	MaxBodyBytes = MaxPayloadBytes + 8<<20
	// LeastBodyBytes is the least: a hello, or a job without references, fits well.
	LeastBodyBytes = 1 << 20
	// MaxHelloBytes is the largest body of a first frame: a space has at
	// most 7 texts and 32 tags of 2 texts, each at most 1 KiB.
	MaxHelloBytes = 128 << 10
)

// Header is what precedes every body, in this order.
type Header struct {
	BodyBytes uint32
	Kind      Kind
	Op        Op
	Code      Code   // of a reply; otherwise 0
	ID        uint64 // chosen by the client, echoed by the reply; in a push the job or fill
}

// Append appends the 16 bytes of h.
func (h Header) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, h.BodyBytes)
	dst = append(dst, byte(h.Kind), byte(h.Op))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(h.Code))
	return binary.LittleEndian.AppendUint64(dst, h.ID)
}

// DecodeHeader reads a header from the first HeaderBytes bytes of b, which
// must be there. It does not judge the fields.
func DecodeHeader(b []byte) Header {
	_ = b[HeaderBytes-1]
	return Header{
		BodyBytes: binary.LittleEndian.Uint32(b),
		Kind:      Kind(b[4]),
		Op:        Op(b[5]),
		Code:      Code(binary.LittleEndian.Uint16(b[6:])),
		ID:        binary.LittleEndian.Uint64(b[8:]),
	}
}

// Begin appends the header of a frame whose body is appended next; End, given
// len(dst) before Begin, then sets the length:
//
//	start := len(dst)
//	dst = wire.Begin(dst, wire.Header{Kind: wire.KindRequest, Op: wire.OpLookup, ID: id})
//	dst = request.Append(dst)
//	dst = wire.End(dst, start)
func Begin(dst []byte, h Header) []byte { return h.Append(dst) }

// End sets the body length of the frame that starts at start, filled up to a
// multiple of 8.
func End(dst []byte, start int) []byte {
	dst = appendPad(dst, len(dst)-start)
	SetBodyBytes(dst[start:], uint32(len(dst)-start-HeaderBytes))
	return dst
}

// SetBodyBytes sets the body length in the header that starts frame, for
// writers that send part of the body from elsewhere.
func SetBodyBytes(frame []byte, n uint32) { binary.LittleEndian.PutUint32(frame, n) }

// AppendRequest appends a whole request frame.
func AppendRequest(dst []byte, op Op, id uint64, m Message) []byte {
	return appendFrame(dst, Header{Kind: KindRequest, Op: op, ID: id}, m)
}

// AppendReply appends a whole reply frame that says ok.
func AppendReply(dst []byte, op Op, id uint64, m Message) []byte {
	return appendFrame(dst, Header{Kind: KindReply, Op: op, ID: id}, m)
}

// AppendPush appends a whole push frame for a job.
func AppendPush(dst []byte, op Op, job uint64, m Message) []byte {
	return appendFrame(dst, Header{Kind: KindPush, Op: op, ID: job}, m)
}

// AppendError appends a whole reply frame that refuses a request.
func AppendError(dst []byte, op Op, id uint64, code Code, m *ErrorReply) []byte {
	if code == CodeVersion {
		return appendVersionRefusal(dst, id, m.Text)
	}
	return appendFrame(dst, Header{Kind: KindReply, Op: op, Code: code, ID: id}, m)
}

func appendFrame(dst []byte, h Header, m Message) []byte {
	start := len(dst)
	return End(m.Append(Begin(dst, h)), start)
}

// Refusal is the body of a reply that refuses with code.
func Refusal(code Code, text string) *ErrorReply {
	m := &ErrorReply{Retry: code.retry(), Text: text}
	switch m.Retry {
	case RetryLater:
		m.AfterMillis = 100 // about what writing a window of chunks takes
	case RetryReconnect:
		m.AfterMillis = 500
	}
	return m
}

// Message is a body: every request, reply and push of this package.
type Message interface {
	// Append appends the encoded body.
	Append(dst []byte) []byte
	// Decode reads the body, keeping views into it. The receiver may be
	// used again for another body. On an error, which wraps ErrMalformed,
	// its fields mean nothing.
	Decode(body []byte) error
}

// name is the entry of a table of stable names, or the number itself for what
// a newer peer sent.
func name(names []string, n uint16, what string) string {
	if int(n) < len(names) && names[n] != "" {
		return names[n]
	}
	return fmt.Sprintf("%s(%d)", what, n)
}
