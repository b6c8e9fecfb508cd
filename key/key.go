package key

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
)

// The errors of this package arrive wrapped with the mistake and its remedy.
var (
	ErrSpace = errors.New("invalid space") // a Space that does not validate
	ErrChain = errors.New("invalid chain") // tokens, hashes or options a Builder refuses
)

// Hash is the 128-bit hash of all tokens from the start of the prompt to the
// end of one chunk. The zero Hash names no chunk: as a parent it stands for
// the root. It is an alias so that slices of hashes can be handed to packages
// that know nothing of keys.
type Hash = [16]byte

// SpaceID is the 128-bit digest of a Space's canonical form.
type SpaceID [16]byte

// String returns 32 lower-case hexadecimal digits.
func (id SpaceID) String() string { return hex.EncodeToString(id[:]) }

// Key names one chunk of one space. It is comparable and holds no pointers.
type Key struct {
	Space SpaceID
	Hash  Hash
}

// String returns space id and hash as hexadecimal digits with a slash between.
func (k Key) String() string { return k.Space.String() + "/" + hex.EncodeToString(k.Hash[:]) }

// MaxChunks is the largest number of chunks in one chain. It bounds what a
// request can make the daemon allocate: 2^20 chunks of 256 tokens are a
// prompt of 268 million tokens.
const MaxChunks = 1 << 20

// Chain is the keys of one prompt in order. A chain made by a Builder holds
// neither the zero hash nor any hash twice, so linking it can make no cycle.
type Chain struct {
	Space  SpaceID
	Hashes []Hash   // one per chunk, from the start of the prompt
	Tokens []uint32 // tokens in each chunk, parallel to Hashes
	Skip   int      // leading chunks the caller does not want; they only give the position
	// Chained is set when the hashes were computed here from tokens, so that
	// equal hashes imply equal prefixes. Hashes given by an engine are
	// compared one by one.
	Chained bool
	// Alone says that the chunks are no prompt: each is the first of its own,
	// and they are named together only so as to be asked for together.
	Alone bool
}

// Len is the number of chunks, skipped ones included.
func (c *Chain) Len() int { return len(c.Hashes) }

// Key returns the key of chunk i.
func (c *Chain) Key(i int) Key { return Key{Space: c.Space, Hash: c.Hashes[i]} }

// Parent returns the hash of the chunk before i, and the zero Hash for the
// first of a prompt.
func (c *Chain) Parent(i int) Hash {
	if i == 0 || c.Alone {
		return Hash{}
	}
	return c.Hashes[i-1]
}

// Depth is how many chunks of its prompt lie before chunk i.
func (c *Chain) Depth(i int) uint32 {
	if c.Alone {
		return 0
	}
	return uint32(i)
}

// TokensIn is how many tokens chunks from..to have.
func (c *Chain) TokensIn(from, to int) (n uint64) {
	for _, tokens := range c.Tokens[from:to] {
		n += uint64(tokens)
	}
	return n
}

// Reset empties the chain and keeps its memory for the next one.
func (c *Chain) Reset() {
	*c = Chain{Hashes: c.Hashes[:0], Tokens: c.Tokens[:0]}
}

// distinct finds a hash that a chain holds twice. It is an open-addressing
// table that is at most half full and, unless it is long, used again for every
// chain.
type distinct struct {
	seed  [2]uint64
	slots []uint32 // position in the chain + 1; 0 is free
}

// maxSlots is how long a table may be to be used again: that of 16,384 chunks.
const maxSlots = 32 << 10

func newDistinct() *distinct { return &distinct{seed: [2]uint64{rand.Uint64(), rand.Uint64()}} }

// place mixes all 16 bytes with a secret, because engines choose their hashes:
// consecutive numbers padded with zeros are common. Two folded multiplications,
// as in wyhash, cost a third of hash/maphash; one alone would leave such
// numbers in clusters under a secret that ends in zero bits.
func (d *distinct) place(h *Hash) uint64 {
	hi, lo := bits.Mul64(binary.LittleEndian.Uint64(h[:8])^d.seed[0], binary.LittleEndian.Uint64(h[8:])^d.seed[1])
	hi, lo = bits.Mul64(hi^lo, golden)
	return hi ^ lo
}

const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio, odd

// check returns an error if hs holds the zero hash or any hash twice.
func (d *distinct) check(hs []Hash) error {
	if len(hs) == 0 {
		return nil
	}
	size := 1 << bits.Len(uint(2*len(hs)-1))
	slots := d.table(size)
	clear(slots)
	mask := uint64(size - 1)
	for i := range hs {
		h := &hs[i]
		if *h == (Hash{}) {
			return fmt.Errorf("%w: the hash of chunk %d is all zero, which stands for the root: send another", ErrChain, i)
		}
		at := d.place(h) & mask
		for slots[at] != 0 {
			if first := slots[at] - 1; hs[first] == *h {
				return fmt.Errorf("%w: chunks %d and %d have the same hash %x: hash each chunk with all before it", ErrChain, first, i, *h)
			}
			at = (at + 1) & mask
		}
		slots[at] = uint32(i + 1)
	}
	return nil
}

// table is room for size slots.
func (d *distinct) table(size int) []uint32 {
	switch {
	case size > maxSlots:
		return make([]uint32, size)
	case size > len(d.slots):
		d.slots = make([]uint32, size)
	}
	return d.slots[:size]
}

// Domain strings keep digests of different things apart and carry the version
// of what follows them. 16 bytes each.
const (
	spaceDomain = "kvstored-space-1"
	chainDomain = "kvstored-chain-1"
	saltDomain  = "kvstored-salt-01"
)

// ID returns the digest of the canonical form. The error is that of Validate.
func (s Space) ID() (SpaceID, error) {
	form, err := s.AppendCanonical(make([]byte, 0, 256))
	if err != nil {
		return SpaceID{}, err
	}
	return SpaceID(digest(form)), nil
}

// AppendCanonical appends the canonical form, as the package comment defines
// it. The error is that of Validate; dst is returned unchanged then.
func (s Space) AppendCanonical(dst []byte) ([]byte, error) {
	if err := s.Validate(); err != nil {
		return dst, err
	}
	dst = append(dst, spaceDomain...)
	dst = appendText(dst, s.Model)
	dst = appendText(dst, s.Revision)
	dst = appendText(dst, s.LoRA)
	dst = appendUint(dst, s.World)
	dst = appendUint(dst, s.Worker)
	dst = appendText(dst, s.DType)
	dst = appendUint(dst, s.ChunkTokens)
	dst = appendText(dst, string(s.Method))
	dst = appendText(dst, s.Group)
	if d := s.saltDigest(); d == (Hash{}) {
		dst = appendText(dst, "")
	} else {
		dst = appendText(dst, string(d[:]))
	}
	dst = appendUint(dst, len(s.Tags))
	for _, t := range s.Tags {
		dst = appendText(dst, t.Name)
		dst = appendText(dst, t.Value)
	}
	return dst, nil
}

// WithoutSalt returns s with the digest of its salt instead of the salt: what may
// be shown and kept. It has the same id.
func (s Space) WithoutSalt() Space {
	s.Salt, s.SaltDigest = "", s.saltDigest()
	return s
}

// saltDigest is zero without a salt.
func (s Space) saltDigest() Hash {
	if s.Salt == "" {
		return s.SaltDigest
	}
	return saltDigest(s.Salt)
}

func saltDigest(salt string) Hash { return digest([]byte(saltDomain + salt)) }

// chainSeed stands in for the hash before the first chunk. It leaves out all
// of the space that does not change what the tokens mean to the hash, so that
// one chain serves all ranks of a model.
func (s Space) chainSeed() Hash {
	b := []byte(chainDomain)
	b = appendText(b, string(s.Method))
	b = appendUint(b, s.ChunkTokens)
	b = appendText(b, s.Salt)
	return digest(b)
}

// digest is SHA-256 truncated to 128 bits.
func digest(p []byte) Hash {
	sum := sha256.Sum256(p)
	return Hash(sum[:])
}

func appendUint(dst []byte, n int) []byte {
	return binary.LittleEndian.AppendUint32(dst, uint32(n))
}

func appendText(dst []byte, s string) []byte {
	return append(appendUint(dst, len(s)), s...)
}
