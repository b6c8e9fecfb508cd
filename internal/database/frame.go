package database

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// What a frame is.
const (
	opOpen   = iota + 1 // Options as JSON
	opPart              // writes, more follow
	opCommit            // writes, the last ones of a commit; the answer is what the database holds then
	opGet               // keys; the answer is their values
	opPage              // a count, a prefix, and the key before the page; the answer is keys and values
	opHas               // a key and values; the answer is a byte for each: 1, if a version of the key has it
	opSync
	opSize    // the answer is what the database holds
	opCompact // drops what is deleted
	opClose
	ansDone  // an answer
	ansError // its text
)

const (
	partBytes  = 256 << 10 // of a commit are sent at once
	pageBytes  = 256 << 10 // at which a page is full
	frameBytes = 64 << 20  // a longer frame is none of ours
	headBytes  = 5
)

// conn is one end of a pair. One caller uses it at a time.
type conn struct {
	net.Conn
	in    *bufio.Reader
	out   []byte                    // the frame that is being made: the head is filled in by send
	since atomic.Pointer[time.Time] // when the request was sent whose answer is awaited; nil: none
	now   func() time.Time
}

func newConn(c net.Conn) *conn {
	return &conn{Conn: c, in: bufio.NewReaderSize(c, 16<<10), out: make([]byte, headBytes, 4<<10), now: time.Now}
}

// asked notes that a request is sent now.
func (c *conn) asked() {
	now := c.now()
	c.since.Store(&now)
}

// answered notes that its answer is there.
func (c *conn) answered() { c.since.Store(nil) }

// send writes the frame in out and empties it.
func (c *conn) send(what byte) error {
	binary.LittleEndian.PutUint32(c.out, uint32(len(c.out)-headBytes))
	c.out[headBytes-1] = what
	_, err := c.Write(c.out)
	c.out = c.out[:headBytes]
	return err
}

// receive reads one frame. The body is the caller's.
func (c *conn) receive() (what byte, body []byte, err error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > frameBytes {
		return 0, nil, fmt.Errorf("database: a frame of %d bytes", n)
	}
	body = make([]byte, n)
	_, err = io.ReadFull(c.in, body)
	return head[headBytes-1], body, err
}

// Refused is what Badger says no with.
type Refused string

func (r Refused) Error() string { return string(r) }

// ask sends the frame in out and returns the body of its answer. The process
// is to be watched over meanwhile, unless the answer may take its time.
func (c *conn) ask(what byte, watch bool) ([]byte, error) {
	if watch {
		c.asked()
		defer c.answered()
	}
	if err := c.send(what); err != nil {
		return nil, err
	}
	what, body, err := c.receive()
	switch {
	case err != nil:
		return nil, err
	case what == ansError:
		return nil, Refused(body)
	}
	return body, nil
}

// The writes of a commit, and what pages and values are made of.
const (
	writeSet = iota
	writeDelete
)

func appendBytes(to, b []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(to, uint32(len(b))), b...)
}

var errShort = errors.New("database: a frame ends too early")

// fields reads what appendBytes and its like have written.
type fields struct {
	rest []byte
	err  error
}

func (f *fields) take(n int) []byte {
	if f.err != nil || len(f.rest) < n {
		f.err, f.rest = errShort, nil
		return nil
	}
	b := f.rest[:n:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) byte() byte {
	if b := f.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (f *fields) number() int {
	if b := f.take(4); b != nil {
		return int(binary.LittleEndian.Uint32(b))
	}
	return 0
}

func (f *fields) bytes() []byte { return f.take(f.number()) }
