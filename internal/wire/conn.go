package wire

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

const (
	// readBytes is the receive buffer of a quiet connection: about what a
	// Unix socket hands over at once, and room for many pipelined frames.
	readBytes = 64 << 10
	// keepBytes is the largest receive buffer kept when it runs empty, so
	// that one large frame does not cost its size for ever.
	keepBytes = 1 << 20
)

// DefaultSpin is the longest a connection polls before it sleeps: about what
// it takes to copy and hash a chunk of a few MiB, so that neither side sleeps
// while the other works on one. Waking costs 50 us and more on virtual
// machines.
const DefaultSpin = time.Millisecond

// ErrFrameTooLarge says that a header claims a body larger than the limit.
// Nothing can be read after it.
var ErrFrameTooLarge = errors.New("frame too large")

// ErrWouldBlock says that a Try call found nothing to read.
var ErrWouldBlock = errors.New("would block")

// Conn carries frames over a Unix socket. One goroutine at a time may read and
// one may write; Close and the deadlines may be set from any.
type Conn struct {
	uc      *net.UnixConn
	raw     syscall.RawConn
	maxBody uint32
	rd      receiver
	wr      sender

	buf  []byte // received bytes, buf[head:tail] not yet handed out
	head int
	tail int
}

// NewConn takes over uc. Spin is the longest time to poll before sleeping; with
// 0 it never polls, and so it is where the process has one CPU, on which polling
// keeps others from running. The limit on bodies
// is MaxHelloBytes until SetMaxBody raises it.
func NewConn(uc *net.UnixConn, spin time.Duration) (*Conn, error) {
	raw, err := uc.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	c := &Conn{uc: uc, raw: raw, maxBody: MaxHelloBytes, buf: make([]byte, readBytes)}
	c.rd.init(spin)
	c.wr.init()
	return c, nil
}

// SetMaxBody sets the limit on bodies that are read. Only the reader may.
func (c *Conn) SetMaxBody(n uint32) { c.maxBody = n }

// Close closes the socket; a read or write under way returns.
func (c *Conn) Close() error { return c.uc.Close() }

// SetReadDeadline makes a blocking read return os.ErrDeadlineExceeded. What
// was received of a frame stays for the next read.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.uc.SetReadDeadline(t) }

// SetWriteDeadline is SetReadDeadline for writes.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.uc.SetWriteDeadline(t) }

// SyscallConn is the socket, for options and credentials.
func (c *Conn) SyscallConn() syscall.RawConn { return c.raw }

// Buffered reports whether ReadFrame would return a frame, or an error about
// one, without reading from the socket.
func (c *Conn) Buffered() bool {
	_, _, ok, err := c.peek()
	return ok || err != nil
}

// ReadFrame returns the next frame, waiting for it. The body is valid until
// the next read. The end of the stream is io.EOF between frames and
// io.ErrUnexpectedEOF within one.
func (c *Conn) ReadFrame() (Header, []byte, error) { return c.read(true) }

// TryReadFrame is ReadFrame, but it never sleeps: if no frame is complete
// after a spin it returns ErrWouldBlock.
func (c *Conn) TryReadFrame() (Header, []byte, error) { return c.read(false) }

func (c *Conn) read(block bool) (Header, []byte, error) {
	for {
		h, body, ok, err := c.peek()
		if err != nil {
			return h, nil, err
		}
		if ok {
			c.head += HeaderBytes + len(body)
			return h, body, nil
		}
		if err := c.receive(h, block); err != nil {
			return Header{}, nil, err
		}
	}
}

// Peek waits for the next n bytes, at most HeaderBytes, and leaves them to be
// read. They are valid until the next read. The end of the stream is as of
// ReadFrame.
func (c *Conn) Peek(n int) ([]byte, error) {
	for c.tail-c.head < n {
		if err := c.receive(Header{}, true); err != nil {
			return nil, err
		}
	}
	return c.buf[c.head : c.head+n : c.head+n], nil
}

// receive reads once, more of the frame that h starts.
func (c *Conn) receive(h Header, block bool) error {
	c.makeRoom(h)
	n, err := c.rd.read(c.raw, c.buf[c.tail:], block)
	c.tail += n
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
// starts. It grows by doubling what has arrived, never to what is claimed: a
// peer has to send a large body to make us hold one.
func (c *Conn) makeRoom(h Header) {
	if c.head == c.tail {
		c.head, c.tail = 0, 0
		if len(c.buf) > keepBytes {
			c.buf = make([]byte, readBytes)
		}
	}
	if c.tail < len(c.buf) && (c.head == 0 || HeaderBytes+int(h.BodyBytes) <= len(c.buf)-c.head) {
		return
	}
	have := c.tail - c.head
	to := c.buf
	if have == len(c.buf) {
		to = make([]byte, min(2*have, HeaderBytes+int(h.BodyBytes)))
	}
	copy(to, c.buf[c.head:c.tail])
	c.buf, c.head, c.tail = to, 0, have
}

// Write sends p whole, waiting while the socket is full.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.TryWrite(p)
	if err != nil || n == len(p) {
		return n, err
	}
	m, err := c.uc.Write(p[n:])
	return n + m, err
}

// TryWrite sends what the socket takes at once, perhaps nothing.
func (c *Conn) TryWrite(p []byte) (int, error) { return c.wr.write(c.raw, p) }

// WriteFiles sends p whole, with descriptors of the files beside its first byte.
func (c *Conn) WriteFiles(p []byte, files ...*os.File) error {
	if len(files) == 0 {
		_, err := c.Write(p)
		return err
	}
	rights, err := fileRights(files)
	if err != nil {
		return err
	}
	n, _, err := c.uc.WriteMsgUnix(p, rights, nil)
	if err == nil && n < len(p) {
		_, err = c.Write(p[n:])
	}
	return err
}

// ReadFrameFiles is ReadFrame for a frame that may bring descriptors with its
// first byte. The caller owns the files, also beside an error.
func (c *Conn) ReadFrameFiles() (Header, []byte, []*os.File, error) {
	var files []*os.File
	for {
		h, body, ok, err := c.peek()
		if err != nil {
			return h, nil, files, err
		}
		if ok {
			c.head += HeaderBytes + len(body)
			return h, body, files, nil
		}
		c.makeRoom(h)
		n, got, err := readFiles(c.uc, c.buf[c.tail:])
		c.tail += n
		files = append(files, got...)
		if err == nil && len(files) > MaxFiles {
			err = fmt.Errorf("%w: more than %d descriptors", ErrMalformed, MaxFiles)
		}
		if err != nil {
			return Header{}, nil, files, c.cutShort(err)
		}
	}
}
