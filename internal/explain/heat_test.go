package explain

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/key"
)

func heatKey(i int) key.Key {
	return key.Key{Space: key.SpaceID{1}, Hash: key.Hash{byte(i), byte(i >> 8)}}
}

// TestFades: a score halves in HalfLife, a store counts no use, and both make an end
// young.
func TestFades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewHeat()
		table.Asked(heatKey(1))
		table.Asked(heatKey(1))
		table.Stored(heatKey(2))
		time.Sleep(HalfLife)
		table.Asked(heatKey(1))
		for _, e := range table.Ends() {
			switch {
			case e.Key == heatKey(1) && (math.Abs(e.Heat-2) > 1e-6 || time.Since(e.Last) != 0):
				t.Errorf("asked for twice, and again after the half-life: %+v", e)
			case e.Key == heatKey(2) && (e.Heat != 0 || time.Since(e.Last) != HalfLife):
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
		table := NewHeat()
		for i := range heatEntries {
			table.Asked(heatKey(i))
		}
		time.Sleep(time.Minute)
		const late = heatEntries/8/4 + heatEntries
		for i := heatEntries; i < late; i++ {
			table.Asked(heatKey(i))
		}
		ends, young := table.Ends(), 0
		for _, e := range ends {
			if time.Since(e.Last) == 0 {
				young++
			}
		}
		if len(ends) > heatEntries || young != late-heatEntries {
			t.Errorf("%d of %d ends, %d of %d young ones", len(ends), heatEntries, young, late-heatEntries)
		}
	})
}

// BenchmarkAsked is what a request pays.
func BenchmarkAsked(b *testing.B) {
	table := NewHeat()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		table.Asked(heatKey(i & 0x3fff))
	}
}
