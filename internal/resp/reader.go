package resp

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
)

const (
	inputBytes = 16 << 10  // buffered; longer arguments go past the buffer
	maxLine    = 64 << 10  // a header, or a command of one word; inputBytes at least
	maxArgs    = 1 << 20   // of one command
	maxBulk    = 512 << 20 // as in Redis; what is not stored is read and dropped
)

// notRedis answers a line with a zero byte. A client of kvstored's own protocol
// sends one at once, and would wait for an answer while the reader waits for the
// end of the line.
const notRedis = "this is no Redis client; kvstored's own clients belong to listen.socket"

const (
	// notHTTP ends a connection of a browser or another client of HTTP. The author of a
	// page chooses the body of such a request, which could be commands.
	notHTTP = "this is no web server; nothing of the request counts"
	// notTyped ends a connection that sends a line in place of an array.
	notTyped = "a command is an array of bulk strings; of lines only PING is taken"
)

// protocolError is input after which the stream cannot be followed any more.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

// source is where a stream comes from.
type source interface {
	// read reads into p, and the bytes behind p into rest. It returns bytes or an
	// error.
	read(p, rest []byte) (int, error)
}

// reader takes a RESP stream apart, one header at a time. A length that a client
// announces costs nothing: memory is only used for bytes that have arrived.
type reader struct {
	src  source
	buf  []byte // buf[r:w] has been read and not used
	r, w int
	long []byte // a line that does not fit the buffer
}

func newReader(src source) *reader { return &reader{src: src, buf: make([]byte, inputBytes)} }

// buffered is how much has arrived already, as far as that is known.
func (r *reader) buffered() int { return r.w - r.r }

// fill reads once more. The buffer must have been used up.
func (r *reader) fill() error {
	r.r, r.w = 0, 0
	n, err := r.src.read(r.buf, nil)
	r.w = n
	if n > 0 {
		return nil
	}
	return err
}

// line returns the bytes before the next line feed, without the carriage
// return before it. They are good until the next call.
func (r *reader) line() ([]byte, error) {
	r.long = r.long[:0]
	for {
		i := bytes.IndexByte(r.buf[r.r:r.w], '\n')
		if l := r.buf[r.r:r.w]; bytes.IndexByte(l[:cmp.Or(i+1, len(l))], 0) >= 0 {
			return nil, protocolError(notRedis)
		}
		if i >= 0 {
			l := r.buf[r.r : r.r+i]
			r.r += i + 1
			if len(r.long) > 0 {
				r.long = append(r.long, l...)
				l = r.long
			}
			return bytes.TrimSuffix(l, []byte{'\r'}), nil
		}
		r.long = append(r.long, r.buf[r.r:r.w]...)
		if len(r.long) > maxLine {
			return nil, protocolError("too long a line")
		}
		if err := r.fill(); err != nil {
			return nil, unexpected(err, len(r.long) > 0)
		}
	}
}

// unexpected is err for an end in the middle of something.
func unexpected(err error, inside bool) error {
	if inside && errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// typedPing is a command of one word without a header, PING.
const typedPing = -1

// command reads the first line of a command: the number of its arguments,
// the name included. An empty one has none.
func (r *reader) command() (int, error) {
	l, err := r.line()
	if err != nil {
		return 0, err
	}
	if len(l) == 0 || l[0] != '*' {
		return typed(bytes.Fields(l))
	}
	n, ok := number(l[1:])
	if !ok || n > maxArgs {
		return 0, protocolError("invalid multibulk length")
	}
	return int(max(0, n)), nil
}

// typed is a line that is no header. Each request of HTTP has one before its body: its
// first, or its field Host.
func typed(words [][]byte) (int, error) {
	if len(words) == 0 {
		return 0, nil
	}
	first, last := words[0], words[len(words)-1]
	switch {
	case bytes.EqualFold(first, []byte("POST")), bytes.EqualFold(first, []byte("Host:")), bytes.HasPrefix(last, []byte("HTTP/")):
		return 0, protocolError(notHTTP)
	case len(words) > 1 || !bytes.EqualFold(first, []byte("PING")):
		return 0, protocolError(notTyped)
	}
	return typedPing, nil
}

// bulk reads the header of an argument: how long it is.
func (r *reader) bulk() (int, error) {
	l, err := r.line()
	if err != nil {
		return 0, unexpected(err, true)
	}
	if len(l) == 0 || l[0] != '$' {
		return 0, protocolError(fmt.Sprintf("expected '$', got '%.1s'", l))
	}
	n, ok := number(l[1:])
	if !ok || n < 0 || n > maxBulk {
		return 0, protocolError("invalid bulk length")
	}
	return int(n), nil
}

// full fills p, from the buffer and then straight from the source, and calls arrived
// for each part. Bytes that come behind p go into the buffer.
func (r *reader) full(p []byte, arrived func(n int)) error {
	at := copy(p, r.buf[r.r:r.w])
	r.r += at
	arrived(at)
	for at < len(p) {
		n, err := r.src.read(p[at:], r.buf)
		if n == 0 {
			return unexpected(err, true)
		}
		if behind := at + n - len(p); behind > 0 {
			r.r, r.w = 0, behind
			n -= behind
		}
		at += n
		arrived(n)
	}
	return nil
}

// end reads what closes an argument.
func (r *reader) end() error {
	for _, want := range [2]byte{'\r', '\n'} {
		if r.r == r.w {
			if err := r.fill(); err != nil {
				return unexpected(err, true)
			}
		}
		if r.buf[r.r] != want {
			return protocolError("an argument is longer than its header says")
		}
		r.r++
	}
	return nil
}

// append reads an argument of n bytes behind dst.
func (r *reader) append(dst []byte, n int) ([]byte, error) {
	for n > 0 {
		if r.r == r.w {
			if err := r.fill(); err != nil {
				return dst, unexpected(err, true)
			}
		}
		part := r.buf[r.r:min(r.w, r.r+n)]
		dst = append(dst, part...)
		r.r += len(part)
		n -= len(part)
	}
	return dst, r.end()
}

// discard drops an argument of n bytes.
func (r *reader) discard(n int) error {
	for n > 0 {
		if r.r == r.w {
			if err := r.fill(); err != nil {
				return unexpected(err, true)
			}
		}
		part := min(n, r.w-r.r)
		r.r += part
		n -= part
	}
	return r.end()
}

// number reads a decimal integer of at most 18 digits.
func number(b []byte) (n int64, ok bool) {
	digits := bytes.TrimPrefix(b, []byte{'-'})
	if len(digits) == 0 || len(digits) > 18 {
		return 0, false
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = 10*n + int64(d-'0')
	}
	if len(digits) < len(b) {
		n = -n
	}
	return n, true
}
