package index

import (
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"
)

// dynamoSeed is the seed of all of Dynamo's hashes (ai-dynamo/dynamo, lib/tokens).
const dynamoSeed = 1337

// hashKind is a way to chain blocks.
type hashKind uint8

const (
	opaque hashKind = iota // hashes come from outside
	dynamo
	dynamoEagle
	dynamoUnseeded
)

// Hash is the method by which the blocks of a shard are named: how a block of
// tokens, and all blocks before it, become one 64-bit sequence hash. Methods are
// values and comparable. The zero Hash has none: blocks are known by the hashes
// that publishers give.
type Hash struct {
	kind hashKind
	seed uint64 // of a block's tokens
}

// DynamoHash is the method of NVIDIA Dynamo's router: local = xxh3_64 of the
// tokens as little-endian u32, seed 1337; sequence[0] = local[0], and then
// sequence[i] = xxh3_64 of sequence[i-1] and local[i] as little-endian u64, with
// that seed. The names of a LoRA adapter and a salt, where they are not empty,
// are added to the seed of local.
func DynamoHash(lora, salt string) Hash {
	h := Hash{kind: dynamo, seed: dynamoSeed}
	if lora != "" {
		h.seed += xxh3.HashStringSeed(lora, 0)
	}
	if salt != "" {
		h.seed += xxh3.HashStringSeed(salt, 1)
	}
	return h
}

// DynamoHashEagle is [DynamoHash] as Dynamo has it for engines that speculate as
// EAGLE does: a block is hashed with the token behind it, and exists once that
// token is known.
func DynamoHashEagle(lora, salt string) Hash {
	h := DynamoHash(lora, salt)
	h.kind = dynamoEagle
	return h
}

// DynamoHashUnseeded is the form of [DynamoHash] that is widely described, with
// seed 0 throughout, and with a zero before the first block: sequence[0] is
// xxh3_64 of 0 and local[0].
func DynamoHashUnseeded() Hash { return Hash{kind: dynamoUnseeded} }

// Opaque reports whether the method cannot hash tokens.
func (h Hash) Opaque() bool { return h.kind == opaque }

// String is the method's name.
func (h Hash) String() string {
	switch h.kind {
	case dynamo:
		return "dynamo"
	case dynamoEagle:
		return "dynamo-eagle"
	case dynamoUnseeded:
		return "dynamo-unseeded"
	default:
		return "opaque"
	}
}

// Ahead is how many tokens behind a block its hash is made of.
func (h Hash) Ahead() int {
	if h.kind == dynamoEagle {
		return 1
	}
	return 0
}

// Blocks is how many blocks of so many tokens have a hash.
func (h Hash) Blocks(tokens, blockTokens int) int { return max(0, tokens-h.Ahead()) / blockTokens }

// Append appends the sequence hashes of all whole blocks of tokens to dst. An
// incomplete last block has none. parent is the block before the first, by its
// sequence hash.
func (h Hash) Append(dst []uint64, parent Parent, tokens []uint32, blockTokens int) ([]uint64, error) {
	if h.Opaque() {
		return dst, fmt.Errorf("hashing %d tokens: %w", len(tokens), ErrNoHash)
	}
	if blockTokens <= 0 {
		return dst, fmt.Errorf("hashing with %d tokens a block: %w", blockTokens, ErrBlockTokens)
	}
	for i := range h.Blocks(len(tokens), blockTokens) {
		next := h.next(parent, tokens, i, blockTokens)
		dst, parent = append(dst, next), After(next)
	}
	return dst, nil
}

// next is the sequence hash of block i of tokens.
func (h Hash) next(parent Parent, tokens []uint32, i, blockTokens int) uint64 {
	local := hashTokens(tokens[i*blockTokens:(i+1)*blockTokens+h.Ahead()], h.seed)
	switch {
	case h.kind == dynamoUnseeded:
		return hashPair(parent.hash, local, 0) // the root's hash is 0
	case parent.below:
		return hashPair(parent.hash, local, dynamoSeed)
	default:
		return local
	}
}

// stackTokens is up to how many tokens are hashed in one piece from the stack.
const stackTokens = 512

func hashTokens(tokens []uint32, seed uint64) uint64 {
	var buf [4 * stackTokens]byte
	if len(tokens) <= stackTokens {
		return xxh3.HashSeed(littleEndian(buf[:], tokens), seed)
	}
	hasher := xxh3.NewSeed(seed)
	for len(tokens) > 0 {
		n := min(stackTokens, len(tokens))
		_, _ = hasher.Write(littleEndian(buf[:], tokens[:n])) // never fails
		tokens = tokens[n:]
	}
	return hasher.Sum64()
}

// littleEndian writes tokens to buf and returns the part that it has written.
func littleEndian(buf []byte, tokens []uint32) []byte {
	buf = buf[:4*len(tokens)]
	for i, t := range tokens {
		binary.LittleEndian.PutUint32(buf[4*i:], t)
	}
	return buf
}

func hashPair(a, b, seed uint64) uint64 {
	var buf [16]byte
	binary.LittleEndian.PutUint64(buf[:], a)
	binary.LittleEndian.PutUint64(buf[8:], b)
	return xxh3.HashSeed(buf[:], seed)
}

// Parent is the place of a chain's first block: behind another block, or at the
// beginning of a prompt. The zero Parent is [Root].
type Parent struct {
	hash  uint64
	below bool
}

// Root is the beginning of a prompt.
var Root Parent

// After is the place behind the block with this hash.
func After(hash uint64) Parent { return Parent{hash: hash, below: true} }

// Hash is the hash of the block; false for [Root].
func (p Parent) Hash() (hash uint64, below bool) { return p.hash, p.below }

// String is the parent as errors name it.
func (p Parent) String() string {
	if !p.below {
		return "root"
	}
	return fmt.Sprintf("%#x", p.hash)
}
