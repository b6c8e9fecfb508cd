package key

import (
	"encoding/hex"
	"errors"
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

// Reset empties the chain and keeps its memory for the next one.
func (c *Chain) Reset() {
	*c = Chain{Hashes: c.Hashes[:0], Tokens: c.Tokens[:0]}
}
