package tiertest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// ChunkTokens is how many tokens every chunk of Chain has.
const ChunkTokens = 16

// Chain makes a chain of n chunks in a space of its own. The same seed gives
// the same chain, and a shorter one is a prefix of a longer one.
func Chain(seed uint64, n int) *key.Chain {
	c := &key.Chain{Chained: true}
	c.Space = key.SpaceID(words(seed, 0))
	for i := range n {
		c.Hashes = append(c.Hashes, words(seed, uint64(i)+1))
		c.Tokens = append(c.Tokens, ChunkTokens)
	}
	return c
}

// Keys returns the keys of chunks from..to of c.
func Keys(c *key.Chain, from, to int) []key.Key {
	var ks []key.Key
	for i := from; i < to; i++ {
		ks = append(ks, c.Key(i))
	}
	return ks
}

// RecordOf is the record of chunk i of c with a payload of n bytes, as
// Payload makes it.
func RecordOf(c *key.Chain, i, n int) tier.Record {
	return recordOf(c, i, n, arena.Checksum(Payload(c.Key(i), n)))
}

func recordOf(c *key.Chain, i, n int, sum uint64) tier.Record {
	return tier.Record{
		Key: c.Key(i), Parent: c.Parent(i), Depth: uint32(i), Tokens: c.Tokens[i],
		Size: uint32(n), Sum: sum,
	}
}

// words makes 16 bytes that are never all zero.
func words(a, b uint64) (h key.Hash) {
	binary.LittleEndian.PutUint64(h[:8], mix(a^mix(b)))
	binary.LittleEndian.PutUint64(h[8:], mix(b^mix(a))|1)
	return h
}

// mix is the finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Payload is the n bytes that belong under k: every byte depends on the whole
// key and on its place.
func Payload(k key.Key, n int) []byte {
	p := make([]byte, n)
	Fill(p, k)
	return p
}

// Fill is Payload into p.
func Fill(p []byte, k key.Key) {
	seed := mix(binary.LittleEndian.Uint64(k.Hash[:8])) ^ binary.LittleEndian.Uint64(k.Hash[8:])
	seed ^= mix(binary.LittleEndian.Uint64(k.Space[:8])) ^ binary.LittleEndian.Uint64(k.Space[8:])
	for ; len(p) >= 8; p = p[8:] {
		seed++
		binary.LittleEndian.PutUint64(p, mix(seed))
	}
	var last [8]byte
	binary.LittleEndian.PutUint64(last[:], mix(seed+1))
	copy(p, last[:])
}

// CheckPayload says whether p is what Payload would make for k.
func CheckPayload(k key.Key, p []byte) error {
	if !bytes.Equal(p, Payload(k, len(p))) {
		return fmt.Errorf("%d bytes under %s are not the ones that were stored", len(p), k)
	}
	return nil
}

// NewEntry is chunk i of c with n bytes in a block of a, sealed. The caller
// owns one reference of its block.
func NewEntry(t testing.TB, a *arena.Arena, c *key.Chain, i, n int) tier.Entry {
	t.Helper()
	b, err := a.Alloc(n)
	if err != nil {
		t.Fatalf("allocate %d bytes for an entry: %v", n, err)
	}
	Fill(b.Bytes(), c.Key(i))
	return tier.Entry{Record: recordOf(c, i, n, b.Seal()), Block: b}
}

// Allocator gives out blocks of an arena. It never waits.
type Allocator struct{ Arena *arena.Arena }

// Alloc implements tier.Allocator.
func (a Allocator) Alloc(ctx context.Context, n int) (arena.Block, error) {
	if err := ctx.Err(); err != nil {
		return arena.Block{}, err
	}
	b, err := a.Arena.Alloc(n)
	if errors.Is(err, arena.ErrFull) {
		return arena.Block{}, fmt.Errorf("%w: %w", tier.ErrNoSpace, err)
	}
	return b, err
}
