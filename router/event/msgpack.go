package event

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrSyntax says that bytes are not msgpack, or not of the kind that a field has.
var ErrSyntax = errors.New("malformed event")

// maxNesting bounds values inside values that are passed over.
const maxNesting = 16

// kind is a kind of msgpack values.
type kind uint8

const (
	kindNil kind = iota
	kindBool
	kindInt // signed and unsigned
	kindFloat
	kindString
	kindBytes
	kindArray
	kindMap
	kindExtension
	kindNone // no value can begin so
)

func (k kind) String() string {
	return [...]string{"nil", "bool", "integer", "float", "string", "bytes", "array", "map", "extension", "nothing"}[k]
}

// reader takes values from msgpack. After an error it has nothing left.
// Format: the msgpack specification, github.com/msgpack/msgpack, spec.md.
type reader struct {
	in   []byte
	size int // of all
	err  error
}

func (r *reader) fail(err error, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: at byte %d: %s", err, r.size-len(r.in), fmt.Sprintf(format, args...))
	}
	r.in = nil
}

// kinds are the kinds of values by their first byte.
var kinds = func() (all [256]kind) {
	for _, span := range []struct {
		first, last int
		kind        kind
	}{
		{0x00, 0x7f, kindInt}, {0x80, 0x8f, kindMap}, {0x90, 0x9f, kindArray}, {0xa0, 0xbf, kindString},
		{0xc0, 0xc0, kindNil}, {0xc1, 0xc1, kindNone}, {0xc2, 0xc3, kindBool}, {0xc4, 0xc6, kindBytes},
		{0xc7, 0xc9, kindExtension}, {0xca, 0xcb, kindFloat}, {0xcc, 0xd3, kindInt}, {0xd4, 0xd8, kindExtension},
		{0xd9, 0xdb, kindString}, {0xdc, 0xdd, kindArray}, {0xde, 0xdf, kindMap}, {0xe0, 0xff, kindInt},
	} {
		for c := span.first; c <= span.last; c++ {
			all[c] = span.kind
		}
	}
	return all
}()

// peek is the kind of the next value.
func (r *reader) peek() kind {
	if len(r.in) == 0 {
		return kindNone
	}
	return kinds[r.in[0]]
}

// take returns the next bytes; nil after an error.
func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.in) {
		r.fail(ErrSyntax, "it ends too early")
		return nil
	}
	b := r.in[:n]
	r.in = r.in[n:]
	return b
}

// unsigned reads a big-endian number of so many bytes.
func (r *reader) unsigned(size int) uint64 {
	b := r.take(size)
	if b == nil {
		return 0
	}
	var all [8]byte
	copy(all[8-size:], b)
	return binary.BigEndian.Uint64(all[:])
}

// want fails if the next value is of another kind.
func (r *reader) want(k kind, what string) bool {
	if got := r.peek(); got != k {
		r.fail(ErrSyntax, "%s is %s, not %s", what, got, k)
		return false
	}
	return true
}

// integer reads an integer of 64 bits; a negative one as its two's complement.
func (r *reader) integer(what string) uint64 {
	if !r.want(kindInt, what) {
		return 0
	}
	switch c := r.take(1)[0]; {
	case c <= 0x7f || c >= 0xe0:
		return uint64(int64(int8(c)))
	case c <= 0xcf:
		return r.unsigned(1 << (c - 0xcc))
	default:
		size := 1 << (c - 0xd0)
		shift := 64 - 8*size
		return uint64(int64(r.unsigned(size)<<shift) >> shift)
	}
}

// number reads an integer from 0 to limit.
func (r *reader) number(what string, limit uint64) int {
	n := r.integer(what)
	if n > limit {
		r.fail(ErrSyntax, "%s is %d, at most %d", what, int64(n), limit)
		return 0
	}
	return int(n)
}

// float reads a time, which some write as an integer.
func (r *reader) float(what string) float64 {
	if r.peek() == kindInt {
		return float64(int64(r.integer(what)))
	}
	if !r.want(kindFloat, what) {
		return 0
	}
	if r.take(1)[0] == 0xca {
		return float64(math.Float32frombits(uint32(r.unsigned(4))))
	}
	return math.Float64frombits(r.unsigned(8))
}

// length reads the head of an array or map: how many values or pairs follow.
// Each takes a byte, so that no input makes a reader reserve more than it has.
func (r *reader) length(k kind, what string) int {
	if !r.want(k, what) {
		return 0
	}
	var n uint64
	switch c := r.take(1)[0]; c {
	case 0xdc, 0xde:
		n = r.unsigned(2)
	case 0xdd, 0xdf:
		n = r.unsigned(4)
	default:
		n = uint64(c & 0x0f)
	}
	if n > uint64(len(r.in)) {
		r.fail(ErrSyntax, "%s is said to have %d values; %d bytes are left", what, n, len(r.in))
		return 0
	}
	return int(n)
}

// raw reads a string or bytes; the result lies in the input.
func (r *reader) raw(what string) []byte {
	k := r.peek()
	if k != kindString && k != kindBytes {
		r.fail(ErrSyntax, "%s is %s, not string or bytes", what, k)
		return nil
	}
	switch c := r.take(1)[0]; c {
	case 0xc4, 0xd9:
		return r.take(int(r.unsigned(1)))
	case 0xc5, 0xda:
		return r.take(int(r.unsigned(2)))
	case 0xc6, 0xdb:
		return r.take(int(r.unsigned(4)))
	default:
		return r.take(int(c & 0x1f))
	}
}

// text reads a string that may be nil.
func (r *reader) text(what string) string {
	if r.null() {
		return ""
	}
	if !r.want(kindString, what) {
		return ""
	}
	return string(r.raw(what))
}

// null reads a nil, if that is next.
func (r *reader) null() bool {
	if r.peek() != kindNil {
		return false
	}
	r.take(1)
	return true
}

// skip passes over a value.
func (r *reader) skip(nesting int) {
	if nesting == 0 {
		r.fail(ErrSyntax, "values are nested more than %d deep", maxNesting)
		return
	}
	switch k := r.peek(); k {
	case kindInt:
		r.integer("")
	case kindFloat:
		r.float("")
	case kindString, kindBytes:
		r.raw("")
	case kindArray, kindMap:
		n := r.length(k, "a value")
		if k == kindMap {
			n *= 2
		}
		for range n {
			if r.err != nil {
				return
			}
			r.skip(nesting - 1)
		}
	case kindExtension:
		r.extension()
	case kindNone:
		r.fail(ErrSyntax, "no value begins so")
	default:
		r.take(1)
	}
}

// extension passes over a value of an application's own kind.
func (r *reader) extension() {
	switch c := r.take(1)[0]; c {
	case 0xc7:
		r.take(1 + int(r.unsigned(1)))
	case 0xc8:
		r.take(1 + int(r.unsigned(2)))
	case 0xc9:
		r.take(1 + int(r.unsigned(4)))
	default:
		r.take(1 + 1<<(c-0xd4))
	}
}
