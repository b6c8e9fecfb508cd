package store

import (
	"testing"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// A lookup that has read the index before a deletion ended does not find what that
// deleted: a fence outlives its deletions.
func TestFenceOutlivesDeletion(t *testing.T) {
	var ps promotions
	c := key.Chain{Space: key.SpaceID{1}, Hashes: []key.Hash{{1}, {2}, {3}}}
	d := deletionOf(tier.All, []key.Key{c.Key(1)})
	end := ps.refuse(d)
	f := ps.fence()
	at := []uint8{1, 3, 2} // as the index says while the tiers still have it
	end()
	f.apply(&c, 0, at)
	if at[0] != 1 || at[1] != 0 || at[2] != 2 {
		t.Errorf("found at %v", at)
	}
	if n := f.before([]key.Key{c.Key(0), c.Key(1)}, tier.Disk); n != 1 {
		t.Errorf("a tier that is being scanned is asked for %d of 2 chunks", n)
	}
	if f := ps.fence(); f != nil {
		t.Errorf("%d deletions under way after the end", len(f))
	}
}
