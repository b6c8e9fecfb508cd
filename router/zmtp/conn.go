package zmtp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// Errors of a connection, wrapped with the bytes or lengths that are wrong.
var (
	ErrProtocol = errors.New("not ZMTP 3")
	ErrTooLarge = errors.New("message is too large")
	ErrPeer     = errors.New("peer of the wrong type")
	ErrBusy     = errors.New("messages of others take all memory that there is for them")
)

const (
	greetingBytes = 64
	// handshakeTimeout is for greeting and READY. libzmq waits 30 s.
	handshakeTimeout = 10 * time.Second
	// maxCommand is far beyond READY with an identity of 255 bytes.
	maxCommand = 4 << 10
	// maxFrames is more than a replay request or an event has.
	maxFrames = 16
)

// The flags of a frame.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// conn is one connection after its handshake. It has one reader and one writer.
type conn struct {
	net.Conn
	r     *bufio.Reader
	out   []byte
	max   int          // bytes of a message that is read
	peer  string       // its socket type
	room  *Room        // for large messages; nil: any
	held  atomic.Int64 // of it, by the last message
	until time.Time    // the deadline of a read; zero: none
}

// handshake makes a conn of an open connection. kind is our socket type, and
// peers are those that fit. It closes nc on an error.
func handshake(nc net.Conn, kind string, max int, peers ...string) (c *conn, err error) {
	c = &conn{Conn: nc, r: bufio.NewReader(nc), max: max}
	defer func() {
		if err != nil {
			_ = nc.Close()
		}
	}()
	if err := nc.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, err
	}
	if _, err := nc.Write(greeting()); err != nil {
		return nil, fmt.Errorf("greet: %w", err)
	}
	if err := c.greeted(); err != nil {
		return nil, err
	}
	if _, err := nc.Write(ready(kind)); err != nil {
		return nil, fmt.Errorf("say ready: %w", err)
	}
	if err := c.isReady(); err != nil {
		return nil, err
	}
	if !slices.Contains(peers, c.peer) {
		return nil, fmt.Errorf("%w: %.20q, want %v", ErrPeer, c.peer, peers)
	}
	return c, nc.SetDeadline(time.Time{})
}

// greeting is ours: signature, version 3.0, mechanism, no server, filler.
func greeting() []byte {
	b := make([]byte, greetingBytes)
	b[0], b[9], b[10] = 0xff, 0x7f, 3
	copy(b[12:32], "NULL")
	return b
}

func (c *conn) greeted() error {
	var b [greetingBytes]byte
	if _, err := io.ReadFull(c.r, b[:12]); err != nil {
		return fmt.Errorf("read the greeting: %w", err)
	}
	if b[0] != 0xff || b[9] != 0x7f || b[10] < 3 {
		return fmt.Errorf("%w: it begins with %x", ErrProtocol, b[:12])
	}
	if _, err := io.ReadFull(c.r, b[12:]); err != nil {
		return fmt.Errorf("read the greeting: %w", err)
	}
	if string(b[12:17]) != "NULL\x00" {
		return fmt.Errorf("%w: mechanism %.20q, want NULL", ErrProtocol, b[12:32])
	}
	return nil
}

// ready is the READY command of a socket type.
func ready(kind string) []byte {
	body := append([]byte{5}, "READY"...)
	for _, p := range [][2]string{{"Socket-Type", kind}, {"Identity", ""}} {
		body = append(append(body, byte(len(p[0]))), p[0]...)
		body = append(binary.BigEndian.AppendUint32(body, uint32(len(p[1]))), p[1]...)
	}
	return append([]byte{flagCommand, byte(len(body))}, body...)
}

// isReady reads the READY command of the peer.
func (c *conn) isReady() error {
	flags, n, err := c.head()
	if err != nil {
		return fmt.Errorf("read READY: %w", err)
	}
	if flags&flagCommand == 0 || n > maxCommand {
		return fmt.Errorf("%w: a frame with flags %#x and %d bytes instead of READY", ErrProtocol, flags, n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c.r, b); err != nil {
		return fmt.Errorf("read READY: %w", err)
	}
	name, b := cut(b, 1)
	if string(name) != "READY" {
		return fmt.Errorf("%w: command %.20q instead of READY", ErrProtocol, name)
	}
	for len(b) > 0 {
		var property, value []byte
		property, b = cut(b, 1)
		value, b = cut(b, 4)
		if string(property) == "Socket-Type" {
			c.peer = string(value)
		}
	}
	return nil
}

// cut takes bytes with their length before them, which has size bytes. A value cut
// short is empty, and so is the rest.
func cut(b []byte, size int) (value, rest []byte) {
	if len(b) < size {
		return nil, nil
	}
	n := uint32(b[0])
	if size == 4 {
		n = binary.BigEndian.Uint32(b)
	}
	if b = b[size:]; uint64(n) > uint64(len(b)) {
		return nil, nil
	}
	return b[:n], b[n:]
}

// head reads the flags and the length of a frame.
func (c *conn) head() (flags byte, n uint64, err error) {
	if flags, err = c.r.ReadByte(); err != nil {
		return 0, 0, err
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 {
		return 0, 0, fmt.Errorf("%w: frame with flags %#x", ErrProtocol, flags)
	}
	if flags&flagLong == 0 {
		b, err := c.r.ReadByte()
		return flags, uint64(b), err
	}
	var b [8]byte
	_, err = io.ReadFull(c.r, b[:])
	return flags, binary.BigEndian.Uint64(b[:]), err
}

// read reads a message. Commands in between are answered or passed over; those that
// subscribe come as ZMTP 3.0 sends them, as messages. The frames are the caller's until
// the next read: then their room is another's.
func (c *conn) read() (frames [][]byte, err error) {
	c.leave()
	defer func() {
		if err != nil {
			c.leave()
		}
	}()
	left := uint64(c.max)
	for {
		flags, n, err := c.head()
		switch {
		case err != nil:
			return nil, err
		case n > left || flags&flagCommand != 0 && n > maxCommand:
			return nil, fmt.Errorf("%w: a frame of %d bytes; at most %d", ErrTooLarge, n, left)
		case len(frames) == maxFrames:
			return nil, fmt.Errorf("%w: more than %d frames", ErrTooLarge, maxFrames)
		}
		frame, err := c.body(n, uint64(c.max)-left)
		if err != nil {
			return nil, err
		}
		if flags&flagCommand == 0 {
			frames, left = append(frames, frame), left-n
			if flags&flagMore == 0 {
				return frames, nil
			}
			continue
		}
		if m := subscription(frame); m != nil && frames == nil {
			return [][]byte{m}, nil
		}
	}
}

const (
	// firstBytes is the room for a frame of which nothing has come.
	firstBytes = 4 << 10
	// freeBytes of a message take no room of a [Room].
	freeBytes = 64 << 10
	// wholeWithin is how long a message that takes room may be on its way.
	wholeWithin = 30 * time.Second
	// byteCost is how much memory a byte of a message takes, decoded.
	byteCost = 3
)

// Room bounds the memory of large messages of many connections.
type Room = semaphore.Weighted

// NewRoom has so many bytes.
func NewRoom(bytes int64) *Room { return semaphore.NewWeighted(bytes) }

// body reads the bytes of a frame, of a message that has some before it. Its room is at most
// twice the bytes that have come: a peer that says a length and sends nothing costs nothing.
func (c *conn) body(n, before uint64) ([]byte, error) {
	b := make([]byte, min(n, firstBytes))
	for have := 0; ; {
		if _, err := io.ReadFull(c.r, b[have:]); err != nil {
			return nil, err
		}
		if have = len(b); uint64(have) == n {
			return b, nil
		}
		next := min(n, 2*uint64(have))
		if err := c.enter(int64(before + next)); err != nil {
			return nil, err
		}
		b = append(make([]byte, 0, next), b...)
		b = b[:cap(b)]
	}
}

// enter takes room for a message that grows to so many bytes. The first to take some begins
// the time within which a message must be whole.
func (c *conn) enter(next int64) error {
	if c.room == nil || next <= freeBytes {
		return nil
	}
	held := c.held.Load()
	if held == 0 && c.until.IsZero() {
		if err := c.SetReadDeadline(time.Now().Add(wholeWithin)); err != nil {
			return err
		}
	}
	more := byteCost*next - held
	if more <= 0 {
		return nil
	}
	if !c.room.TryAcquire(more) {
		return fmt.Errorf("%w: a message of %d bytes and more", ErrBusy, next)
	}
	c.held.Add(more)
	return nil
}

// leave gives the room of the last message back.
func (c *conn) leave() {
	if n := c.held.Swap(0); n > 0 {
		c.room.Release(n)
	}
}

// subscription is a SUBSCRIBE or CANCEL command of ZMTP 3.1 as 3.0 has it; nil for
// other commands.
func subscription(command []byte) []byte {
	name, topic := cut(command, 1)
	switch string(name) {
	case "SUBSCRIBE":
		return append([]byte{1}, topic...)
	case "CANCEL":
		return append([]byte{0}, topic...)
	}
	return nil
}

// write sends a message within a time.
func (c *conn) write(within time.Duration, frames ...[]byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	c.out = appendMessage(c.out[:0], frames)
	_, err := c.Write(c.out)
	if cap(c.out) > 1<<20 { // one large message must not cost its size for ever
		c.out = nil
	}
	return err
}

// appendMessage appends a message as it is sent.
func appendMessage(dst []byte, frames [][]byte) []byte {
	for i, f := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		if len(f) < 256 {
			dst = append(dst, flags, byte(len(f)))
		} else {
			dst = binary.BigEndian.AppendUint64(append(dst, flags|flagLong), uint64(len(f)))
		}
		dst = append(dst, f...)
	}
	return dst
}
