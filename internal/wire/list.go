package wire

import (
	"encoding/binary"
	"iter"
	"slices"
	"unsafe"
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

// Ref says where one ready chunk lies in the arena, its length and its index.
type Ref struct {
	Offset uint64 // in the arena
	Sum    uint64 // XXH3-64 of the payload
	Length uint32 // bytes
	Tokens uint32
}

const refBytes = 24

// Refs is a list of Ref as it lies in a body.
type Refs []byte

// Add appends one element.
func (l Refs) Add(r Ref) Refs {
	l = binary.LittleEndian.AppendUint64(l, r.Offset)
	l = binary.LittleEndian.AppendUint64(l, r.Sum)
	l = binary.LittleEndian.AppendUint32(l, r.Length)
	return binary.LittleEndian.AppendUint32(l, r.Tokens)
}

// Len is the number of elements.
func (l Refs) Len() int { return len(l) / refBytes }

// At returns element i.
func (l Refs) At(i int) Ref {
	b := l[i*refBytes:][:refBytes]
	return Ref{
		Offset: binary.LittleEndian.Uint64(b),
		Sum:    binary.LittleEndian.Uint64(b[8:]),
		Length: binary.LittleEndian.Uint32(b[16:]),
		Tokens: binary.LittleEndian.Uint32(b[20:]),
	}
}

// Slice is the elements from i up to j.
func (l Refs) Slice(i, j int) Refs { return l[i*refBytes : j*refBytes] }

// Sum is the checksum of what a client would store in a slot.
type Sum struct {
	Slot uint32 // 0 is the first of the reservation
	Sum  uint64 // XXH3-64 of the payload
}

const sumBytes = 16

// Sums is a list of Sum as it lies in an option.
type Sums []byte

// Add appends one element.
func (l Sums) Add(s Sum) Sums {
	l = appendZero(binary.LittleEndian.AppendUint32(l, s.Slot), 4)
	return binary.LittleEndian.AppendUint64(l, s.Sum)
}

// Len is the number of elements.
func (l Sums) Len() int { return len(l) / sumBytes }

// At returns element i.
func (l Sums) At(i int) Sum {
	b := l[i*sumBytes:][:sumBytes]
	return Sum{Slot: binary.LittleEndian.Uint32(b), Sum: binary.LittleEndian.Uint64(b[8:])}
}

// Slot is the answer to one chunk of a reservation.
type Slot struct {
	// Code is CodeOK where room is granted, CodeExists or CodePending.
	Code Code
	// Length is the bytes asked for, if granted; of what exists its own, or 0
	// where the daemon does not know them without reading.
	Length uint32
	Offset uint64 // of the room, if granted: in the staging window
}

const slotBytes = 16

// Slots is a list of Slot as it lies in a body.
type Slots []byte

// Add appends one element.
func (l Slots) Add(s Slot) Slots {
	l = appendCode(l, s.Code, 4)
	l = binary.LittleEndian.AppendUint32(l, s.Length)
	return binary.LittleEndian.AppendUint64(l, s.Offset)
}

// Len is the number of elements.
func (l Slots) Len() int { return len(l) / slotBytes }

// At returns element i.
func (l Slots) At(i int) Slot {
	b := l[i*slotBytes:][:slotBytes]
	return Slot{
		Code:   Code(binary.LittleEndian.Uint16(b)),
		Length: binary.LittleEndian.Uint32(b[4:]),
		Offset: binary.LittleEndian.Uint64(b[8:]),
	}
}

// Stored is what became of one chunk that was committed or put.
type Stored struct {
	Code Code
	Sum  uint64 // of the chunk that is there now; 0 unless Code.Present, or where it was not compared
}

const storedBytes = 16

// Results is a list of Stored as it lies in a body.
type Results []byte

// Add appends one element.
func (l Results) Add(s Stored) Results {
	l = appendCode(l, s.Code, 8)
	return binary.LittleEndian.AppendUint64(l, s.Sum)
}

// Len is the number of elements.
func (l Results) Len() int { return len(l) / storedBytes }

// At returns element i.
func (l Results) At(i int) Stored {
	b := l[i*storedBytes:][:storedBytes]
	return Stored{Code: Code(binary.LittleEndian.Uint16(b)), Sum: binary.LittleEndian.Uint64(b[8:])}
}

// Chunk describes one payload of a get reply.
type Chunk struct {
	Length uint32 // bytes
	Tokens uint32
	Sum    uint64 // XXH3-64 of the payload
}

const chunkBytes = 16

// Chunks is a list of Chunk as it lies in a body.
type Chunks []byte

// Add appends one element.
func (l Chunks) Add(c Chunk) Chunks {
	l = binary.LittleEndian.AppendUint32(l, c.Length)
	l = binary.LittleEndian.AppendUint32(l, c.Tokens)
	return binary.LittleEndian.AppendUint64(l, c.Sum)
}

// Len is the number of elements.
func (l Chunks) Len() int { return len(l) / chunkBytes }

// At returns element i.
func (l Chunks) At(i int) Chunk {
	b := l[i*chunkBytes:][:chunkBytes]
	return Chunk{
		Length: binary.LittleEndian.Uint32(b),
		Tokens: binary.LittleEndian.Uint32(b[4:]),
		Sum:    binary.LittleEndian.Uint64(b[8:]),
	}
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
func (l Pairs) Add(name, value string) Pairs { return appendPair(l, name, value) }

func appendPair(dst []byte, name, value string) []byte {
	at := len(dst)
	return endRecord(appendStr(appendStr(beginRecord(dst), name), value), at)
}

// appendPairs appends the list with its count.
func appendPairs(dst []byte, l Pairs) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(l.Len()))
	return append(appendZero(dst, 4), l...)
}

// pairs reads a list.
func pairsIn(c *cursor, field string) Pairs {
	start := c.off + 8
	c.listed(field, func(sub *cursor) {
		sub.str(field)
		sub.view(field)
	})
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
