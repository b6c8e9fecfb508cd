package wire

import (
	"encoding/binary"
	"iter"
	"math"
	"slices"
	"unsafe"

	"github.com/kvstored/kvstored/key"
)

// U32s is a list of numbers as little-endian bytes, as it lies in a body.
type U32s []byte

// ViewU32s returns vs as a list. It shares memory with vs where the machine is
// little-endian and is a copy elsewhere.
func ViewU32s(vs []uint32) U32s {
	if len(vs) == 0 {
		return nil
	}
	if littleEndian {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(vs))), 4*len(vs))
	}
	out := make(U32s, 0, 4*len(vs))
	for _, v := range vs {
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	return out
}

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// Len is the number of elements.
func (l U32s) Len() int { return len(l) / 4 }

// At returns element i.
func (l U32s) At(i int) uint32 { return binary.LittleEndian.Uint32(l[4*i:]) }

// Append appends the elements to dst.
func (l U32s) Append(dst []uint32) []uint32 {
	dst = slices.Grow(dst, l.Len())
	for i := range l.Len() {
		dst = append(dst, l.At(i))
	}
	return dst
}

// payloadBytes is the sum of the lengths.
func (l Chunks) payloadBytes() int64 {
	n := int64(0)
	for i := range l.Len() {
		n += int64(l.At(i).Length)
	}
	return n
}

// Pairs is a list of names and values as it lies in a body: records.
type Pairs []byte

// Add appends one pair.
func (l Pairs) Add(name, value string) Pairs {
	at := len(l)
	return endRecord(appendTag(beginRecord(l), &key.Tag{Name: name, Value: value}), at)
}

// appendPairs appends the list with its count.
func appendPairs(dst []byte, l Pairs) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(l.Len()))
	return append(appendZero(dst, 4), l...)
}

// pairs reads a list.
func (c *cursor) pairs(field string) Pairs {
	n, start := c.list(math.MaxUint32, field), c.off
	for ; n > 0 && c.err == nil; n-- {
		sub := c.record(field)
		sub.str(field)
		sub.view(field)
		c.ended(&sub, field)
	}
	if c.err != nil || start == c.off {
		return nil
	}
	return Pairs(c.b[start:c.off])
}

// All yields the pairs as views into the body.
func (l Pairs) All() iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		c := cursor{b: l}
		for c.err == nil && c.left() > 0 {
			sub := c.record("pair")
			name, value := sub.view("name"), sub.view("value")
			if sub.err != nil || !yield(name, value) {
				return
			}
		}
	}
}

// Len is the number of pairs.
func (l Pairs) Len() int {
	n := 0
	for range l.All() {
		n++
	}
	return n
}
