package load

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

const (
	minSize = 3 << 10 // some payloads lie in the database
	// MaxSize is the most that a payload has.
	MaxSize = 250 << 10
)

// Chain is a chain that no other number makes.
func Chain(t testing.TB, sp key.Space, number uint64, chunks int) *key.Chain {
	t.Helper()
	b, err := key.NewBuilder(sp)
	if err != nil {
		t.Fatal(err)
	}
	var raw []byte
	lengths := make([]uint32, chunks)
	for i := range chunks {
		raw = binary.LittleEndian.AppendUint64(raw, number+1)
		raw = binary.LittleEndian.AppendUint64(raw, uint64(i+1))
		lengths[i] = uint32(sp.ChunkTokens)
	}
	chain := new(key.Chain)
	if err := b.Hashes(chain, 16, raw, lengths, key.Options{}); err != nil {
		t.Fatal(err)
	}
	return chain
}

// Size is the payload size of a chunk, derived from its key.
func Size(k key.Key) uint32 {
	n := binary.LittleEndian.Uint64(k.Hash[:])*31 + binary.LittleEndian.Uint64(k.Hash[8:])
	return minSize + uint32(n*2654435761%(MaxSize-minSize))
}

// Space is the space of all chains, unless a test says otherwise.
var Space = key.Space{Model: "crash", World: 1, DType: "none", ChunkTokens: 16, Method: "given:crash"}

// Bytes is what the payloads of a chain take.
func Bytes(chain *key.Chain) (n int64) {
	for i := range chain.Len() {
		n += int64(Size(chain.Key(i)))
	}
	return n
}

// bytesOf are the payload bytes of a key, without end.
func bytesOf(k key.Key) *rand.ChaCha8 {
	var seed [32]byte
	copy(seed[:16], k.Space[:])
	copy(seed[16:], k.Hash[:])
	return rand.NewChaCha8(seed)
}

// Fill writes the payload of a key.
func Fill(p []byte, k key.Key) {
	_, _ = bytesOf(k).Read(p) // never fails
}

// Filled reports whether p is what Fill writes.
func Filled(p []byte, k key.Key) bool {
	var part [4096]byte
	for want := bytesOf(k); len(p) > 0; {
		n := min(len(p), len(part))
		_, _ = want.Read(part[:n]) // never fails
		if !bytes.Equal(p[:n], part[:n]) {
			return false
		}
		p = p[n:]
	}
	return true
}

// Right reports whether p is the payload that Put has stored for a key.
func Right(k key.Key, p []byte) bool { return len(p) == int(Size(k)) && Filled(p, k) }

// Put stores a chain whose payloads follow from its keys. One that is stored already is
// left as it is.
func Put(ctx context.Context, c *client.Client, chain *key.Chain) error {
	sizes := make([]uint32, chain.Len())
	for i := range sizes {
		sizes[i] = Size(chain.Key(i))
	}
	for first := 0; first < chain.Len(); {
		f, err := c.Reserve(ctx, client.Chain(chain), client.ReserveOptions{First: first, Sizes: sizes[first:], Wait: 10 * time.Second})
		if err != nil {
			return err
		}
		for i := range f.Len() {
			if f.Status(i) == client.Granted {
				Fill(f.Bytes(i), chain.Key(first+i))
			}
		}
		if _, err := f.Commit(ctx); err != nil {
			return err
		}
		first += f.Len()
	}
	return nil
}
