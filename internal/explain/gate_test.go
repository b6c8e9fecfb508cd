package explain

import (
	"testing"
)

// TestGuess: however many heads the last chain had, the session of the next is the same.
func TestGuess(t *testing.T) {
	for n := 1; n <= 9; n++ {
		for heads := range n + 1 {
			for guess := range 12 {
				g := &gate{shift: 1, heads: make(map[uint64]struct{})}
				for i := range heads {
					g.heads[uint64(i)] = struct{}{}
				}
				g.guess.Store(int32(guess))
				if got, want := g.of(n, func(i int) uint64 { return uint64(i) }), uint64(min(heads, n-1)); got != want {
					t.Fatalf("%d chunks, %d of them heads, after one with %d: session %d", n, heads, guess, got)
				}
			}
		}
	}
}
