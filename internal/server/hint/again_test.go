package hint

import (
	"testing"
	"time"

	"github.com/kvstored/kvstored/key"
)

// TestMemoryOfAgain checks that a claim made again and again, or released each time,
// takes the memory of one.
func TestMemoryOfAgain(t *testing.T) {
	hs, sizes := make([]key.Hash, 100), make([]int64, 100)
	for i := range hs {
		hs[i], sizes[i] = key.Hash{byte(i + 1)}, 1
	}
	for name, release := range map[string]bool{"again": false, "released": true} {
		t.Run(name, func(t *testing.T) {
			table := NewClaims(newTiers(t), ClaimLimits{TotalBytes: 1000, UserBytes: 1000, Duration: time.Hour})
			c := Claimant{Name: "conversation"}
			var first int64
			for range 1000 {
				if n, err := table.Retain(c, hs, sizes, time.Hour); n != len(hs) || err != nil {
					t.Fatalf("%d chunks: %v", n, err)
				}
				if first == 0 {
					first = table.Stats().MemoryBytes
				}
				if now := table.Stats().MemoryBytes; now != first {
					t.Fatalf("%d bytes, first %d", now, first)
				}
				if n := table.Release(c, []key.Hash{}); n != 0 || table.Stats().Chunks != 100 {
					t.Fatalf("%d chunks are left, where none were to be released: %d were", table.Stats().Chunks, n)
				}
				if release {
					table.ReleaseAll(c)
					if left := table.Stats().MemoryBytes; left != 0 || len(table.mu.users) > 0 {
						t.Fatalf("%d bytes of %d users are left", left, len(table.mu.users))
					}
				}
			}
		})
	}
}
