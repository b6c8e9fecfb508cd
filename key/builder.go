package key

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Options say which chunks of a prompt are wanted. The zero value wants all
// full ones.
type Options struct {
	SaveUnfull bool // keep a last chunk of fewer than ChunkTokens tokens
	Alone      bool // the chunks are no prompt: see Chain.Alone; for hashes only
}

// Builder turns prompts into chains of one space. It is not safe for
// concurrent use, because it reuses its scratch memory: have one per
// connection. It allocates nothing once its scratch and the destination chain
// have grown to the longest prompt, but a table for prompts of more than 16,384
// chunks.
type Builder struct {
	space       SpaceID
	method      Method
	chunkTokens int
	seed        Hash
	salt        Hash   // of seed what is not the length of chunks; zero where hashes are given
	hasher      hasher // nil where hashes are given
	distinct    *distinct
	scratch     []byte // one chunk of tokens as bytes
}

// Share has b use the scratch memory of o from now on: one caller uses both, one
// at a time.
func (b *Builder) Share(o *Builder) { b.distinct = o.distinct }

// ScratchBytes is the memory that it keeps from one chain to the next: at most
// 128 KiB, and after Tokens the bytes of a chunk besides.
func (b *Builder) ScratchBytes() int { return 4*cap(b.distinct.slots) + cap(b.scratch) }

// NewBuilder returns a Builder for s. The error wraps ErrSpace.
func NewBuilder(s Space) (*Builder, error) {
	id, err := s.ID()
	if err != nil {
		return nil, err
	}
	b := &Builder{space: id, method: s.Method, chunkTokens: s.ChunkTokens, distinct: newDistinct()}
	if s.Method.IsGiven() {
		return b, nil
	}
	if s.Salt == "" && s.SaltDigest != (Hash{}) {
		return nil, fmt.Errorf("%w: the salt is known by its digest only, which cannot seed %s hashes: set the salt", ErrSpace, s.Method)
	}
	b.seed, b.salt = s.chainSeed(), saltDigest(s.Salt)
	b.hasher = newHasher(s.Method, b.seed)
	return b, nil
}

// Space returns the id of the builder's space.
func (b *Builder) Space() SpaceID { return b.space }

// Computes reports whether hashes are computed from tokens; else they are given.
func (b *Builder) Computes() bool { return b.hasher != nil }

// SamePrompt reports whether a prompt has the same hashes in the space of o, but for how
// many tokens a chunk has: as in those of all groups of a hybrid model.
func (b *Builder) SamePrompt(o *Builder) bool { return b.method == o.method && b.salt == o.salt }

// SameChains reports whether a prompt has the same hashes in the space of o,
// as in those of all ranks of a model.
func (b *Builder) SameChains(o *Builder) bool {
	return b.SamePrompt(o) && b.chunkTokens == o.chunkTokens
}

// Tokens makes dst the chain of a prompt of token ids, reusing dst's memory.
// On an error, which wraps ErrChain, dst is empty.
func (b *Builder) Tokens(dst *Chain, tokens []uint32, o Options) error {
	if err := b.startTokens(dst, len(tokens), o); err != nil {
		return err
	}
	prev := b.seed
	for i := range dst.Hashes {
		chunk := tokens[:min(b.chunkTokens, len(tokens))]
		tokens = tokens[len(chunk):]
		prev = b.hasher.next(prev, b.encode(chunk))
		dst.Hashes[i] = prev
	}
	return b.finish(dst, o, true)
}

// TokenBytes is Tokens for token ids as 4 little-endian bytes each, as they
// come from the wire. It reads raw in place and keeps nothing of it.
func (b *Builder) TokenBytes(dst *Chain, raw []byte, o Options) error {
	if len(raw)%4 != 0 {
		dst.Reset()
		return fmt.Errorf("%w: %d bytes of tokens: send 4 bytes for each", ErrChain, len(raw))
	}
	if err := b.startTokens(dst, len(raw)/4, o); err != nil {
		return err
	}
	prev := b.seed
	for i := range dst.Hashes {
		chunk := raw[:min(4*b.chunkTokens, len(raw))]
		raw = raw[len(chunk):]
		prev = b.hasher.next(prev, chunk)
		dst.Hashes[i] = prev
	}
	return b.finish(dst, o, true)
}

// Hashes makes dst the chain of a prompt whose chain hashes the caller
// computed: raw holds one of width bytes (8, 16 or 32) for each chunk, lengths
// the tokens of each chunk, all ChunkTokens but the last. Where the method is
// not a given one, only width 16 is taken: hashes a Builder computed before.
// On an error, which wraps ErrChain, dst is empty.
func (b *Builder) Hashes(dst *Chain, width int, raw []byte, lengths []uint32, o Options) error {
	dst.Reset()
	if err := b.checkGiven(width, raw, lengths); err != nil {
		return err
	}
	tokens := int64(0)
	if last := len(lengths) - 1; last >= 0 {
		tokens = int64(last)*int64(b.chunkTokens) + int64(lengths[last])
	}
	if err := b.start(dst, tokens, o); err != nil {
		return err
	}
	for i := range dst.Hashes {
		given := raw[i*width:]
		if width == 8 {
			dst.Hashes[i] = Hash{}
			copy(dst.Hashes[i][:8], given[:8])
		} else {
			dst.Hashes[i] = Hash(given[:16])
		}
	}
	return b.finish(dst, o, false)
}

// checkGiven is what must hold before raw can be cut into hashes.
func (b *Builder) checkGiven(width int, raw []byte, lengths []uint32) error {
	switch {
	case width != 8 && width != 16 && width != 32:
		return fmt.Errorf("%w: hashes of %d bytes: send 8, 16 or 32", ErrChain, width)
	case width != 16 && !b.method.IsGiven():
		return fmt.Errorf("%w: hashes of %d bytes in a %s space: send tokens, or open a %q space", ErrChain, width, b.method, Given)
	case len(lengths) > MaxChunks:
		return fmt.Errorf("%w: %d chunks: send at most %d", ErrChain, len(lengths), MaxChunks)
	case len(raw) != width*len(lengths):
		return fmt.Errorf("%w: %d bytes of hashes for %d chunks: send %d for each", ErrChain, len(raw), len(lengths), width)
	}
	for i, n := range lengths {
		full := int64(n) == int64(b.chunkTokens)
		last := i == len(lengths)-1
		if !full && (!last || n == 0 || int64(n) > int64(b.chunkTokens)) {
			return fmt.Errorf("%w: chunk %d of %d has %d tokens: send %d, fewer only in the last", ErrChain, i, len(lengths), n, b.chunkTokens)
		}
	}
	return nil
}

// startTokens is start, and refuses tokens where the engine promised hashes.
func (b *Builder) startTokens(dst *Chain, tokens int, o Options) error {
	if b.hasher == nil {
		dst.Reset()
		return fmt.Errorf("%w: tokens in a %s space: send hashes, or open a %s space", ErrChain, b.method, SHA256)
	}
	return b.start(dst, int64(tokens), o)
}

// start makes dst as long as a prompt has chunks, and fills in their lengths.
// The hashes are the caller's to set.
func (b *Builder) start(dst *Chain, tokens int64, o Options) error {
	dst.Reset()
	size := int64(b.chunkTokens)
	n := tokens / size
	if o.SaveUnfull && tokens%size != 0 {
		n++
	}
	if n > MaxChunks {
		return fmt.Errorf("%w: %d chunks: send at most %d", ErrChain, n, MaxChunks)
	}
	dst.Hashes = slices.Grow(dst.Hashes, int(n))[:n]
	dst.Tokens = slices.Grow(dst.Tokens, int(n))[:n]
	for i := range dst.Tokens {
		dst.Tokens[i] = uint32(size)
	}
	if n > tokens/size {
		dst.Tokens[n-1] = uint32(tokens % size)
	}
	return nil
}

// encode returns tokens as 4 little-endian bytes each, valid until the next call.
func (b *Builder) encode(tokens []uint32) []byte {
	b.scratch = slices.Grow(b.scratch[:0], 4*len(tokens))[:4*len(tokens)]
	rest := b.scratch
	for _, t := range tokens {
		binary.LittleEndian.PutUint32(rest, t)
		rest = rest[4:]
	}
	return b.scratch
}

// finish checks what the code that links the chain relies on and fills in the
// rest.
func (b *Builder) finish(dst *Chain, o Options, chained bool) error {
	if err := b.distinct.check(dst.Hashes); err != nil {
		dst.Reset()
		return err
	}
	dst.Space = b.space
	dst.Chained, dst.Alone = chained, o.Alone && !chained
	return nil
}

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
