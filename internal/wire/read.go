package wire

import (
	"encoding/binary"
	"iter"
	"unsafe"

	"github.com/kvstored/kvstored/key"
)

// MaxReads is the most reads that one request tells of.
const MaxReads = 1024

// ReadRequest tells of reads from the arena that the daemon was not asked for: each is a
// prompt whose chunks behind the skipped ones were all read, in DRAM.
type ReadRequest struct{ Reads Reads }

// Append implements Message.
func (m *ReadRequest) Append(dst []byte) []byte {
	dst = appendZero(binary.LittleEndian.AppendUint32(dst, uint32(m.Reads.Len())), 4)
	return noOptions(append(dst, m.Reads...))
}

// Decode implements Message.
func (m *ReadRequest) Decode(body []byte) error {
	c := requestCursor(body)
	m.Reads = nil
	start, n := c.off+8, 0
	c.listed("reads", func(sub *cursor) {
		var ch Chain
		sub.bareChain(&ch)
		n++
		sub.atMost(n, MaxReads, "reads")
	})
	if c.err == nil && n > 0 {
		m.Reads = Reads(c.b[start:c.off])
	}
	return c.endRequest("read", nil)
}

// Reads is a list of chains as it lies in a body: records.
type Reads []byte

// Add appends one chain.
func (l Reads) Add(ch *Chain) Reads { return ch.append(l) }

// All yields the chains, whose hashes and tokens are views into the body.
func (l Reads) All() iter.Seq[*Chain] {
	return func(yield func(*Chain) bool) {
		c := cursor{b: l}
		for c.err == nil && c.left() > 0 {
			var ch Chain
			sub := c.record("read")
			sub.bareChain(&ch)
			if sub.err != nil || !yield(&ch) {
				return
			}
		}
	}
}

// Len is the number of chains.
func (l Reads) Len() int {
	n := 0
	for range l.All() {
		n++
	}
	return n
}

// ViewHashes returns hashes as a chain has them, of 16 bytes each. It shares memory with hs.
func ViewHashes(hs []key.Hash) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(hs))), len(hs)*len(key.Hash{}))
}
