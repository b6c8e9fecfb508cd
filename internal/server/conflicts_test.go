package server

import (
	"encoding/hex"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/key"
)

func TestConflictsAreSaidOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d conflicts
		a, b := key.SpaceID{1}, key.SpaceID{2}
		for i, want := range []uint64{1, 0, 0} {
			if got := d.add(a, time.Now()); got != want {
				t.Errorf("call %d: the log tells of %d, want %d", i, got, want)
			}
		}
		if got := d.add(b, time.Now()); got != 1 {
			t.Errorf("another space: %d", got)
		}
		time.Sleep(conflictsQuiet)
		if got := d.add(a, time.Now()); got != 3 {
			t.Errorf("a minute later the log tells of %d, want all 3 since", got)
		}
		counts := d.counts()
		if counts[hex.EncodeToString(a[:])] != 4 || counts[hex.EncodeToString(b[:])] != 1 || len(counts) != 2 {
			t.Errorf("counted %v", counts)
		}
	})
}

func TestConflictsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d conflicts
		said := uint64(0)
		for i := range 3 * maxConflictSpaces {
			said += d.add(key.SpaceID{byte(i), byte(i >> 8)}, time.Unix(1000, 0))
		}
		counts := d.counts()
		if len(counts) != maxConflictSpaces+1 || counts["others"] != 2*maxConflictSpaces {
			t.Errorf("%d counts, %d of others", len(counts), counts["others"])
		}
		if said != maxConflictSpaces+1 {
			t.Errorf("the log told of %d, want one of each space and one of the others", said)
		}
	})
}
