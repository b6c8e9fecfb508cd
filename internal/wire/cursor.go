package wire

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// cursor reads a body from front to back. The first failure sticks: every
// read after it returns zero, so that a decoder checks once, at its end.
type cursor struct {
	b   []byte
	off int
	err error
}

func (c *cursor) fail(field, format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s at byte %d: %s", ErrMalformed, field, c.off, fmt.Sprintf(format, args...))
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

// list is a view of n elements of size bytes each.
func (c *cursor) list(n uint32, size int, field string) []byte {
	return c.bytes(int64(n)*int64(size), field)
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

// text is a view of a string: u16 length, then UTF-8.
func (c *cursor) text(field string) []byte {
	v := c.bytes(int64(c.u16(field)), field)
	if !utf8.Valid(v) {
		c.fail(field, "not valid UTF-8")
	}
	return v
}

func (c *cursor) str(field string) string { return string(c.text(field)) }

// end is how a reply ends: further fields are from a newer peer.
func (c *cursor) end(message string) error {
	if c.err != nil {
		return fmt.Errorf("%s: %w", message, c.err)
	}
	return nil
}

// endRequest is how a request ends: a list of options, and nothing behind it.
func (c *cursor) endRequest(message string) error { return c.endWith(message, nil) }

// endWith is endRequest for a message that has options of its own.
func (c *cursor) endWith(message string, known func(tag uint16, value cursor) bool) error {
	c.options(known)
	if c.err == nil && c.left() != 0 {
		c.fail("end", "%d bytes too many", c.left())
	}
	return c.end(message)
}

// appendStr appends a string, cut at a character so that its length fits.
func appendStr(dst []byte, s string) []byte {
	if len(s) > maxStrBytes {
		n := maxStrBytes
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n]
	}
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s)))
	return append(dst, s...)
}

const maxStrBytes = 1<<16 - 1

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// pairs reads u16 count and as many pairs of strings.
func (c *cursor) pairs(field string) Pairs {
	n := c.u16(field)
	start := c.off
	for range n {
		c.text(field)
		c.text(field)
		if c.err != nil {
			return nil
		}
	}
	return Pairs(c.b[start:c.off])
}
