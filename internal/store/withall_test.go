package store

import (
	"math/rand/v2"
	"testing"
)

// No byte that has all bits of the mask is left out, and few others are named.
func TestWithAll(t *testing.T) {
	r, named, others := rand.New(rand.NewPCG(1, 2)), 0, 0
	for range 20_000 {
		bytes, mask := make([]uint8, r.IntN(65)), uint8(1+r.IntN(255))
		for i := range bytes {
			if bytes[i] = uint8(r.Uint32()); r.IntN(4) == 0 {
				bytes[i] |= mask
			}
		}
		got := withAll(bytes, mask)
		for i, b := range bytes {
			switch has, says := b&mask == mask, got>>i&1 == 1; {
			case has && !says:
				t.Fatalf("byte %d of %x has all of %x: %b", i, bytes, mask, got)
			case says:
				if named++; !has {
					others++
				}
			}
		}
		if len(bytes) < 64 && got>>len(bytes) != 0 {
			t.Fatalf("%b names more than %d bytes", got, len(bytes))
		}
	}
	if others > named/20 {
		t.Errorf("%d of %d that are named do not have all", others, named)
	}
}
