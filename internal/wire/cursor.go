package wire

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// cursor reads a body, or a record in it, from front to back. The first failure
// sticks: every read after it returns zero, so that a decoder checks once, at its
// end.
type cursor struct {
	b      []byte
	off    int
	base   int // of b in the body
	strict bool
	err    error
}

// replyCursor passes over what a newer peer has added; requestCursor refuses it.
func replyCursor(body []byte) cursor   { return cursor{b: body} }
func requestCursor(body []byte) cursor { return cursor{b: body, strict: true} }

func (c *cursor) fail(field, format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s at byte %d: %s", ErrMalformed, field, c.base+c.off, fmt.Sprintf(format, args...))
	}
}

func (c *cursor) left() int { return len(c.b) - c.off }

// bytes is a view of the next n bytes, or nil if n is 0 or after a failure.
func (c *cursor) bytes(n int64, field string) []byte {
	if c.err != nil || n == 0 {
		return nil
	}
	if n > int64(c.left()) {
		c.fail(field, "needs %d bytes, %d are left", n, c.left())
		return nil
	}
	v := c.b[c.off : c.off+int(n) : c.off+int(n)]
	c.off += int(n)
	return v
}

// zero passes over n bytes, which a request has as zeros.
func (c *cursor) zero(n int64, field string) {
	v := c.bytes(n, field)
	if c.strict && !isZero(v) {
		c.fail(field, "%x, send zeros", v)
	}
}

func isZero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}

// padded is a view of n bytes behind which zeros fill up to a multiple of 8; the
// head before them has so many bytes of it.
func (c *cursor) padded(n, head int64, field string) []byte {
	v := c.bytes(n, field)
	c.zero(-(n+head)&7, field)
	return v
}

func (c *cursor) u8(field string) uint8 {
	if v := c.bytes(1, field); v != nil {
		return v[0]
	}
	return 0
}

func (c *cursor) u16(field string) uint16 {
	if v := c.bytes(2, field); v != nil {
		return binary.LittleEndian.Uint16(v)
	}
	return 0
}

func (c *cursor) u32(field string) uint32 {
	if v := c.bytes(4, field); v != nil {
		return binary.LittleEndian.Uint32(v)
	}
	return 0
}

func (c *cursor) u64(field string) uint64 {
	if v := c.bytes(8, field); v != nil {
		return binary.LittleEndian.Uint64(v)
	}
	return 0
}

// bool is a byte that must be 0 or 1.
func (c *cursor) bool(field string) bool {
	v := c.u8(field)
	if v > 1 {
		c.fail(field, "%d is neither 0 nor 1", v)
	}
	return v == 1
}

// flags is a byte of which only the bits in known may be set: to ignore a
// flag would be to do something else than was asked.
func (c *cursor) flags(known uint8, field string) uint8 {
	v := c.u8(field)
	if v&^known != 0 {
		c.fail(field, "unknown bits %#02x", v&^known)
	}
	return v
}

// upTo is a byte that is no larger than most.
func (c *cursor) upTo(most uint8, field string) uint8 {
	v := c.u8(field)
	if v > most {
		c.fail(field, "%d is unknown", v)
	}
	return v
}

// view is the bytes of a text. A request's must be UTF-8.
func (c *cursor) view(field string) []byte {
	v := c.padded(int64(c.u32(field)), 4, field)
	if c.strict && !utf8.Valid(v) {
		c.fail(field, "not valid UTF-8")
	}
	return v
}

// text is a copy of a text of any length.
func (c *cursor) text(field string) string { return string(c.view(field)) }

// str is a text of at most MaxStrBytes, which a server sees to.
func (c *cursor) str(field string) string {
	v := c.view(field)
	if c.strict && len(v) > MaxStrBytes {
		c.fail(field, "%d bytes, use at most %d", len(v), MaxStrBytes)
	}
	return string(v)
}

// array is a view of the elements of an array whose element has size bytes here.
// Where a newer peer's are longer it is a copy of their known beginnings.
func (c *cursor) array(size int, field string) []byte {
	n, each := c.arrayHead(field)
	if c.err == nil && n > 0 && each < size {
		c.fail(field, "elements of %d bytes, at least %d are known", each, size)
	}
	b := c.padded(n*int64(each), 0, field)
	if c.err != nil || each == size {
		return b
	}
	return compact(c, b, size, each, field)
}

func (c *cursor) arrayHead(field string) (n int64, each int) {
	n, each = int64(c.u32(field)), int(c.u16(field))
	c.zero(2, field)
	if n == 0 {
		each = 0
	}
	return n, each
}

// compact leaves of elements of each bytes the first size.
func compact(c *cursor, b []byte, size, each int, field string) []byte {
	if each == 0 {
		return nil
	}
	out := make([]byte, 0, len(b)/each*size)
	for ; len(b) >= each; b = b[each:] {
		out = append(out, b[:size]...)
		c.known(b[size:each], field)
	}
	return out
}

// known refuses what a newer peer has added to a request, unless it is zero.
func (c *cursor) known(rest []byte, field string) {
	if c.strict && c.err == nil && !isZero(rest) {
		c.err = fmt.Errorf("%w in the end of %s, before byte %d", ErrUnknownOption, field, c.base+c.off)
	}
}

// numbers is a view of an array of numbers of size bytes.
func (c *cursor) numbers(size int, field string) []byte {
	n, each := c.arrayHead(field)
	if c.err == nil && n > 0 && each != size {
		c.fail(field, "elements of %d bytes, they have %d", each, size)
	}
	return c.padded(n*int64(each), 0, field)
}

// record begins a record; ended ends it.
func (c *cursor) record(field string) cursor {
	n := int64(c.u32(field))
	c.zero(4, field)
	base := c.base + c.off
	sub := cursor{b: c.padded(n, 0, field), base: base, strict: c.strict, err: c.err}
	return sub
}

// ended takes over the failure of a record that was read.
func (c *cursor) ended(sub *cursor, field string) {
	if c.err == nil {
		sub.known(sub.b[sub.off:], field)
		c.err = sub.err
	}
}

// list is how many records a list has; a request's at most most.
func (c *cursor) list(most uint32, field string) uint32 {
	n := c.u32(field)
	c.zero(4, field)
	if c.strict {
		c.atMost(int(n), int(most), field)
	}
	return n
}

// end is how a reply ends: further bytes are from a newer peer.
func (c *cursor) end(message string) error {
	if c.err != nil {
		return fmt.Errorf("%s: %w", message, c.err)
	}
	return nil
}

// endBody is how a request ends: nothing is behind its options and payloads.
func (c *cursor) endBody(message string) error {
	if c.left() >= 8 {
		c.fail("end", "%d bytes too many", c.left())
	}
	c.zero(int64(c.left()), "end")
	return c.end(message)
}

// MaxStrBytes is the longest name in a request; texts may be longer.
const MaxStrBytes = 1024

// appendPad appends zeros up to a multiple of 8, where n bytes were appended.
func appendPad(dst []byte, n int) []byte {
	var zeros [8]byte
	return append(dst, zeros[:-n&7]...)
}

func appendZero(dst []byte, n int) []byte {
	var zeros [16]byte
	return append(dst, zeros[:n]...)
}

func appendStr[T string | []byte](dst []byte, s T) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s)))
	return appendPad(append(dst, s...), 4+len(s))
}

// appendArray appends n elements of size bytes each.
func appendArray(dst []byte, size int, elements []byte) []byte {
	if len(elements) == 0 {
		return appendZero(dst, 8)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(elements)/size))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(size)) // u16, and u16 zero
	return appendPad(append(dst, elements...), len(elements))
}

// beginRecord begins a record; endRecord, given what beginRecord returned and
// len(dst) before it, sets its length.
func beginRecord(dst []byte) []byte { return appendZero(dst, 8) }

func endRecord(dst []byte, start int) []byte {
	n := len(dst) - start - 8
	binary.LittleEndian.PutUint32(dst[start:], uint32(n))
	return appendPad(dst, n)
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}
