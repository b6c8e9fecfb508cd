package explain

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/key"
)

func hotKey(i int) key.Key {
	return key.Key{Space: key.SpaceID{1}, Hash: key.Hash{byte(i), byte(i >> 8)}}
}

// TestFades: a score halves in HalfLife, a store counts no use, and both make an end
// young.
func TestFades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewHotPrefixes()
		table.Asked(hotKey(1))
		table.Asked(hotKey(1))
		table.Stored(hotKey(2))
		time.Sleep(HalfLife)
		table.Asked(hotKey(1))
		for _, e := range table.Ends() {
			switch {
			case e.Key == hotKey(1) && (math.Abs(e.Heat-2) > 1e-6 || time.Since(e.Last) != 0):
				t.Errorf("asked for twice, and again after the half-life: %+v", e)
			case e.Key == hotKey(2) && (e.Heat != 0 || time.Since(e.Last) != HalfLife):
				t.Errorf("stored: %+v", e)
			}
		}
		if n := len(table.Ends()); n != 2 {
			t.Errorf("%d ends", n)
		}
	})
}

// TestBounded: a full table forgets the ends that were noted the longest ago.
func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewHotPrefixes()
		for i := range hotEntries {
			table.Asked(hotKey(i))
		}
		time.Sleep(time.Minute)
		const late = hotEntries/8/4 + hotEntries
		for i := hotEntries; i < late; i++ {
			table.Asked(hotKey(i))
		}
		ends, young := table.Ends(), 0
		for _, e := range ends {
			if time.Since(e.Last) == 0 {
				young++
			}
		}
		if len(ends) > hotEntries || young != late-hotEntries {
			t.Errorf("%d of %d ends, %d of %d young ones", len(ends), hotEntries, young, late-hotEntries)
		}
	})
}

// BenchmarkAsked is what a request pays.
func BenchmarkAsked(b *testing.B) {
	table := NewHotPrefixes()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		table.Asked(hotKey(i & 0x3fff))
	}
}
