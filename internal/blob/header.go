package blob

import (
	"bytes"
	"encoding/binary"
	"time"
)

// The header in front of every value, little-endian:
//
//	0  u32  magic, "KVB1"
//	4  u32  length of the name
//	8  i64  when the value expires, ms since 1970; 0 = never
//	16      the name, zeros up to a multiple of 8
const (
	magic       = uint32('K') | 'V'<<8 | 'B'<<16 | '1'<<24
	fixedHeader = 16
)

// headerBytes is how long the header of a value with such a name is.
func headerBytes(name int) int { return (fixedHeader + name + 7) &^ 7 }

// putHeader writes the header of name over the start of b, which has room.
func putHeader(b, name []byte, expires int64) {
	binary.LittleEndian.PutUint32(b, magic)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(name)))
	setExpiry(b, expires)
	n := copy(b[fixedHeader:], name)
	clear(b[fixedHeader+n : headerBytes(len(name))])
}

func setExpiry(b []byte, expires int64) { binary.LittleEndian.PutUint64(b[8:], uint64(expires)) }

// header is what the header of a value says; name is part of the block.
type header struct {
	name    []byte
	expires int64
	value   []byte
}

// parse reads a block; false means that this is no value of ours.
func (h *header) parse(b []byte) bool {
	if len(b) < fixedHeader || binary.LittleEndian.Uint32(b) != magic {
		return false
	}
	n := binary.LittleEndian.Uint32(b[4:])
	if n > MaxName || headerBytes(int(n)) > len(b) {
		return false
	}
	h.name, h.value = b[fixedHeader:fixedHeader+n], b[headerBytes(int(n)):]
	h.expires = int64(binary.LittleEndian.Uint64(b[8:]))
	return true
}

// of reports whether the value is that of name and has not expired.
func (h *header) of(name []byte, now time.Time) bool {
	return bytes.Equal(h.name, name) && (h.expires == 0 || h.expires > now.UnixMilli())
}
