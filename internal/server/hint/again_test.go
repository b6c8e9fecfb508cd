package hint

import (
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
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
			table := NewClaims(func(key.SpaceID, []key.Hash, []ledger.Rank) {}, ClaimLimits{TotalBytes: 1000, UserBytes: 1000, Duration: time.Hour})
			c := Claimant{Name: "conversation"}
			var first int64
			for range 1000 {
				if n, err := table.Retain(c, hs, sizes, 50, time.Hour); n != len(hs) || err != nil {
					t.Fatalf("%d chunks: %v", n, err)
				}
				if first == 0 {
					first = table.Stats().MemoryBytes
				}
				if now := table.Stats().MemoryBytes; now != first {
					t.Fatalf("%d bytes, first %d", now, first)
				}
				if _, err := table.Retain(c, nil, nil, 0, time.Hour); err != nil || table.Stats().Chunks != 100 {
					t.Fatalf("%d chunks are left, where none were to be released: %v", table.Stats().Chunks, err)
				}
				if release {
					table.Release(c, nil)
					if left := table.Stats().MemoryBytes; left != 0 || len(table.mu.users) > 0 {
						t.Fatalf("%d bytes of %d users are left", left, len(table.mu.users))
					}
				}
			}
		})
	}
}
