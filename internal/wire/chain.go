package wire

import (
	"encoding/binary"
	"iter"
	"math"
	"slices"
	"unsafe"

	"github.com/kvstored/kvstored/key"
)

const (
	chainSaveUnfull = 1 << 0
	chainAlone      = 1 << 1
)

// Chain says which chunks a request is about. In every form each chunk
// number and every count in the request and its reply starts after the first
// Skip chunks: these only give the position.
type Chain struct {
	Space      uint32 // handle; passed over in FormRef and FormKept
	Form       Form
	SaveUnfull bool   // a last chunk of fewer tokens counts too; of FormTokens and FormHashes
	Alone      bool   // FormHashes: the chunks are no prompt, each is the first of its own
	Skip       uint32 // leading chunks left out; in FormRef on top of what that chain leaves out
	Tokens     U32s   // FormTokens
	Width      uint16 // FormHashes: bytes of each hash, 8, 16 or 32
	LastTokens uint32 // FormHashes: of the last chunk; 0: it is full, as all others are
	Hashes     []byte // FormHashes: Width bytes for each chunk
	// ID is that of the job or fill (FormRef), of the kept chain (FormKept), or the
	// number under which the connection is to keep this one; 0: it need not.
	ID uint64
}

// Chunks is how many hashes there are.
func (ch *Chain) Chunks() int { return len(ch.Hashes) / max(1, int(ch.Width)) }

// appendChain is by hand, as is readChain: what the items are depends on the form.
func appendChain(dst []byte, ch *Chain) []byte {
	flags := byte(0)
	if ch.SaveUnfull {
		flags |= chainSaveUnfull
	}
	if ch.Alone {
		flags |= chainAlone
	}
	dst = binary.LittleEndian.AppendUint32(dst, ch.Space)
	dst = append(dst, byte(ch.Form), flags, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, ch.Skip)
	dst = binary.LittleEndian.AppendUint32(dst, ch.LastTokens)
	dst = binary.LittleEndian.AppendUint64(dst, ch.ID)
	switch ch.Form {
	case FormTokens:
		return appendArray(dst, 4, ch.Tokens)
	case FormHashes:
		return appendArray(dst, int(ch.Width), ch.Hashes)
	}
	return appendZero(dst, 8)
}

func readChain(c *cursor, ch *Chain) {
	*ch = Chain{Space: c.u32("chain space"), Form: Form(c.u8("chain form"))}
	known := uint8(chainSaveUnfull)
	if ch.Form == FormHashes {
		known |= chainAlone
	}
	flags := c.flags(known, "chain flags")
	ch.SaveUnfull, ch.Alone = flags&chainSaveUnfull != 0, flags&chainAlone != 0
	c.zero(2, "chain")
	ch.Skip, ch.LastTokens, ch.ID = c.u32("chain skip"), c.u32("chain last tokens"), c.u64("chain id")
	if ch.Form != FormHashes && ch.LastTokens != 0 {
		c.fail("chain last tokens", "%d, only a chain of hashes has them", ch.LastTokens)
	}
	switch ch.Form {
	case FormTokens:
		ch.Tokens = c.numbers(4, "chain tokens")
	case FormHashes:
		ch.Hashes, ch.Width = hashesIn(c)
	case FormRef, FormKept, FormNone:
		if n, _ := c.arrayHead("chain items"); n != 0 {
			c.fail("chain items", "%d, a chain of form %s has none", n, ch.Form)
		}
	default:
		c.fail("chain form", "%d is unknown", ch.Form)
	}
}

// hashes reads an array of hashes of one width.
func hashesIn(c *cursor) ([]byte, uint16) {
	n, width := c.arrayHead("chain hashes")
	switch {
	case n == 0:
		return nil, 16
	case width != 8 && width != 16 && width != 32:
		c.fail("hash width", "%d, use 8, 16 or 32", width)
	case n > key.MaxChunks:
		c.fail("chain hashes", "%d chunks, use at most %d", n, key.MaxChunks)
	}
	return c.padded(n*int64(width), 0, "chain hashes"), uint16(width)
}

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
