package explain

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/key"
)

// TestPairs: what went is shared among those that came to the tier in the same minute, by
// their bytes; an hour later it is forgotten.
func TestPairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Rivals
		a, b, c := key.SpaceID{1}, key.SpaceID{2}, key.SpaceID{3}
		want := func(pairs map[Rivalry]float64) {
			t.Helper()
			got := table.Pairs()
			for p, n := range pairs {
				if math.Abs(got[p]-n) > 1e-9 {
					t.Errorf("%x by %x: %v, want %v", p.Of[0], p.By[0], got[p], n)
				}
			}
			if len(got) != len(pairs) {
				t.Errorf("%d pairs, want %d: %v", len(got), len(pairs), got)
			}
		}
		table.Came(0, a, 30)
		table.Came(0, b, 10)
		table.Came(1, c, 99) // to another tier
		for range 8 {
			table.Gone(0, c)
		}
		want(map[Rivalry]float64{{a, c}: 6, {b, c}: 2})
		time.Sleep(time.Minute)
		table.Gone(1, a)
		want(map[Rivalry]float64{{a, c}: 6, {b, c}: 2, {Others, a}: 1})
		time.Sleep(59 * time.Minute)
		want(map[Rivalry]float64{{Others, a}: 1})
		time.Sleep(time.Minute)
		want(nil)
	})
}

// TestBounds: however many spaces there are, a minute has the counts of a few.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Rivals
		for i := range 1000 {
			id := key.SpaceID{byte(i), byte(i >> 8), 1}
			table.Came(0, id, 1)
			table.Gone(0, id)
		}
		sum := 0.0
		for _, n := range table.Pairs() {
			sum += n
		}
		if n := len(table.Pairs()); n > (mostSpaces+1)*(mostSpaces+1) || math.Abs(sum-1000) > 1e-6 {
			t.Errorf("%d pairs of %v chunks", n, sum)
		}
	})
}
