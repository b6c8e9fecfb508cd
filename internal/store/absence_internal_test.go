package store

import (
	"testing"

	"github.com/kvstored/kvstored/internal/explain"
)

// TestDeclinesAreDrops: why a writer drops a chunk is why its tier declined it, by
// number and by name.
func TestDeclinesAreDrops(t *testing.T) {
	for r := range dropReasons {
		if d := explain.Decline(r); d.String() != r.String() {
			t.Errorf("a chunk dropped as %v counts as declined: %v", r, d)
		}
	}
}
