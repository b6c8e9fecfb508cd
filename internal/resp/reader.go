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
	maxLine    = 64 << 10  // an inline command
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
	// notTyped ends a connection over TCP that sends a line in place of an array.
	notTyped = "over TCP a command is an array of bulk strings; lines are taken from the Unix socket only, but for PING"
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
	far  bool   // the client may be anywhere: no commands typed by hand but PING
}

func newReader(src source, far bool) *reader {
	return &reader{src: src, far: far, buf: make([]byte, inputBytes)}
}

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
			return nil, protocolError("too big inline request")
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

// command reads the first line of a command: the number of its arguments,
// the name included. An empty one has none.
func (r *reader) command() (int, error) {
	l, err := r.line()
	if err != nil {
		return 0, err
	}
	if len(l) == 0 || l[0] != '*' {
		words := bytes.Fields(l)
		if err := r.mayType(words); err != nil {
			return 0, err
		}
		return r.inline(words), nil
	}
	n, ok := number(l[1:])
	if !ok || n > maxArgs {
		return 0, protocolError("invalid multibulk length")
	}
	return int(max(0, n)), nil
}

// mayType is an error for a line that is not taken for a command. Each request of HTTP
// has one before its body: its first, or its field Host.
func (r *reader) mayType(words [][]byte) error {
	if len(words) == 0 {
		return nil
	}
	first, last := words[0], words[len(words)-1]
	switch {
	case bytes.EqualFold(first, []byte("POST")), bytes.EqualFold(first, []byte("Host:")), r.far && bytes.HasPrefix(last, []byte("HTTP/")):
		return protocolError(notHTTP)
	case r.far && (len(words) > 1 || !bytes.EqualFold(first, []byte("PING"))):
		return protocolError(notTyped)
	}
	return nil
}

// inline puts the words of a command typed by hand back as arguments.
func (r *reader) inline(words [][]byte) int {
	var b []byte
	for _, word := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(word), word)
	}
	if len(b) == 0 {
		return 0
	}
	b = append(b, r.buf[r.r:r.w]...)
	r.r, r.w = 0, len(b)
	b = append(b, make([]byte, max(0, inputBytes-len(b)))...)
	r.buf = b
	return len(words)
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

// shortBytes is more than short reads: three digits.
const shortBytes = 1000

// short appends an argument to dst if all of it is in the buffer and less than
// shortBytes, as most names are. Otherwise it has read nothing.
func (r *reader) short(dst []byte) ([]byte, bool) {
	b := r.buf[r.r:r.w]
	if len(b) == 0 || b[0] != '$' {
		return dst, false
	}
	n, at := 0, 1
	for ; at < len(b) && at <= 3 && '0' <= b[at] && b[at] <= '9'; at++ {
		n = 10*n + int(b[at]-'0')
	}
	end := at + 2 + n
	if at == 1 || len(b) < end+2 || b[at] != '\r' || b[at+1] != '\n' || b[end] != '\r' || b[end+1] != '\n' {
		return dst, false
	}
	r.r += end + 2
	return append(dst, b[at+2:end]...), true
}

// shorts is short for the arguments that follow, up to n in all, as long as text may
// take another one: it has at most most bytes.
func (r *reader) shorts(text []byte, ends []int, n, most int) ([]byte, []int) {
	for len(ends) < n && len(text)+shortBytes <= most {
		var ok bool
		if text, ok = r.short(text); !ok {
			break
		}
		ends = append(ends, len(text))
	}
	return text, ends
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
