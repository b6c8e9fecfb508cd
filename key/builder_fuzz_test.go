package key_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/kvstored/kvstored/key"
)

func FuzzBuilderHashes(f *testing.F) {
	f.Add(uint8(0), wide(8, 3), []byte{4, 4, 2}, true)
	f.Add(uint8(1), wide(16, 2), []byte{4, 4}, false)
	f.Add(uint8(2), wide(32, 2), []byte{4, 5}, false)
	f.Add(uint8(1), make([]byte, 16), []byte{1}, true)
	f.Fuzz(func(t *testing.T, w uint8, raw, lens []byte, saveUnfull bool) {
		widths := []int{8, 16, 32, int(w)}
		width := widths[int(w)%len(widths)]
		var lengths []uint32
		for _, n := range lens {
			lengths = append(lengths, uint32(n))
		}
		b := newBuilder(t, space(key.Given, 4))
		before := bytes.Clone(raw)
		var c key.Chain
		err := b.Hashes(&c, width, raw, lengths, key.Options{SaveUnfull: saveUnfull})
		if !bytes.Equal(before, raw) {
			t.Fatal("the caller's hashes were changed")
		}
		if len(c.Tokens) != c.Len() {
			t.Fatalf("%d lengths for %d hashes", len(c.Tokens), c.Len())
		}
		if err != nil {
			if !errors.Is(err, key.ErrChain) || c.Len() != 0 {
				t.Fatalf("error %v with %d chunks", err, c.Len())
			}
			return
		}
		seen := map[key.Hash]bool{{}: true}
		for i, h := range c.Hashes {
			if seen[h] {
				t.Fatalf("chunk %d has the zero hash or one seen before: %x", i, h)
			}
			seen[h] = true
			if !bytes.HasPrefix(raw[i*width:], h[:min(width, 16)]) || c.Tokens[i] != lengths[i] {
				t.Fatalf("chunk %d is %x of %d tokens", i, h, c.Tokens[i])
			}
		}
	})
}
