package key

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/cespare/xxhash/v2"
)

// hasher computes the hash of a chunk from the one before it and the chunk's
// tokens as little-endian bytes.
type hasher interface {
	next(prev Hash, tokens []byte) Hash
}

func newHasher(m Method, seed Hash) hasher {
	if m == XXH64 {
		return &xxhLanes{
			seeds: [2]uint64{binary.LittleEndian.Uint64(seed[:8]), binary.LittleEndian.Uint64(seed[8:])},
		}
	}
	return &shaLink{state: sha256.New()}
}

// shaLink is SHA-256 truncated to 128 bits. Its buffers are fields because
// a slice that is handed to a hash.Hash escapes: on the stack they would be
// allocated anew for every chunk.
type shaLink struct {
	state hash.Hash
	prev  Hash
	sum   [sha256.Size]byte
}

func (l *shaLink) next(prev Hash, tokens []byte) Hash {
	l.prev = prev
	l.state.Reset()
	l.state.Write(l.prev[:])
	l.state.Write(tokens)
	l.state.Sum(l.sum[:0])
	return Hash(l.sum[:])
}

// xxhLanes is XXH64 under two seeds. Both lanes read all 128 bits of the
// previous hash, so a collision in one does not spread to the other.
type xxhLanes struct {
	seeds [2]uint64
	state xxhash.Digest
	prev  Hash
}

func (l *xxhLanes) next(prev Hash, tokens []byte) Hash {
	l.prev = prev
	var h Hash
	for i, seed := range l.seeds {
		l.state.ResetWithSeed(seed)
		l.state.Write(l.prev[:])
		l.state.Write(tokens)
		binary.BigEndian.PutUint64(h[8*i:], l.state.Sum64())
	}
	return h
}
