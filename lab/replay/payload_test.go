package replay

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/kvstored/kvstored/key"
)

func testKey(n byte) key.Key {
	return key.Key{Space: key.SpaceID{0: 9, 15: 7}, Hash: key.Hash{0: n, 15: 1}}
}

// TestVerifyFindsEveryByte flips one byte at each place of payloads of every
// length modulo the words that are compared at once.
func TestVerifyFindsEveryByte(t *testing.T) {
	for n := range 100 {
		p := make([]byte, n)
		Fill(p, testKey(1))
		if off := Verify(p, testKey(1)); off != -1 {
			t.Fatalf("%d bytes: own payload differs at %d", n, off)
		}
		for i := range p {
			p[i] ^= 1 << rand.IntN(8)
			if off := Verify(p, testKey(1)); off != i {
				t.Fatalf("%d bytes, byte %d is wrong: Verify says %d", n, i, off)
			}
			Fill(p, testKey(1))
		}
	}
}

// TestPayloadPrefix: a shorter payload is the start of a longer one, so what
// is cut or shifted cannot pass for something else.
func TestPayloadPrefix(t *testing.T) {
	long := make([]byte, 4096)
	Fill(long, testKey(1))
	for n := range len(long) {
		p := make([]byte, n)
		Fill(p, testKey(1))
		if !bytes.Equal(p, long[:n]) {
			t.Fatalf("%d bytes are not the start of %d", n, len(long))
		}
	}
	if off := Verify(long[8:], testKey(1)); off != 0 && off != 1 {
		t.Errorf("a payload shifted by a word passes up to %d", off)
	}
}

func TestPayloadOfAnotherKey(t *testing.T) {
	p := make([]byte, 4096)
	Fill(p, testKey(1))
	others := map[string]key.Key{
		"hash, first byte": testKey(2),
		"hash, last byte":  {Space: testKey(1).Space, Hash: key.Hash{0: 1, 15: 2}},
		"space":            {Space: key.SpaceID{0: 8, 15: 7}, Hash: testKey(1).Hash},
	}
	for what, k := range others {
		if off := Verify(p, k); off == -1 || off > 2 {
			t.Errorf("%s: the payload passes up to %d", what, off)
		}
	}
}

func BenchmarkFill(b *testing.B) {
	p := make([]byte, 64<<10)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		Fill(p, testKey(1))
	}
}

func BenchmarkVerify(b *testing.B) {
	p := make([]byte, 64<<10)
	Fill(p, testKey(1))
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		if Verify(p, testKey(1)) >= 0 {
			b.Fatal("differs")
		}
	}
}
