package heat

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/key"
)

func keyOf(i int) key.Key {
	return key.Key{Space: key.SpaceID{1}, Hash: key.Hash{byte(i), byte(i >> 8)}}
}

// TestFades: a score halves in HalfLife, a store counts no use, and both make an end
// young.
func TestFades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New()
		table.Asked(keyOf(1))
		table.Asked(keyOf(1))
		table.Stored(keyOf(2))
		time.Sleep(HalfLife)
		table.Asked(keyOf(1))
		for _, e := range table.Ends() {
			switch {
			case e.Key == keyOf(1) && (math.Abs(e.Heat-2) > 1e-6 || time.Since(e.Last) != 0):
				t.Errorf("asked for twice, and again after the half-life: %+v", e)
			case e.Key == keyOf(2) && (e.Heat != 0 || time.Since(e.Last) != HalfLife):
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
		table := New()
		for i := range Entries {
			table.Asked(keyOf(i))
		}
		time.Sleep(time.Minute)
		const late = Entries/slots/4 + Entries
		for i := Entries; i < late; i++ {
			table.Asked(keyOf(i))
		}
		ends, young := table.Ends(), 0
		for _, e := range ends {
			if time.Since(e.Last) == 0 {
				young++
			}
		}
		if len(ends) > Entries || young != late-Entries {
			t.Errorf("%d of %d ends, %d of %d young ones", len(ends), Entries, young, late-Entries)
		}
	})
}

// BenchmarkAsked is what a request pays.
func BenchmarkAsked(b *testing.B) {
	table := New()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		table.Asked(keyOf(i & 0x3fff))
	}
}
