package disk

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// twoPaths is a tier of two paths with the keys up to n, of 50,000 bytes each.
func twoPaths(t *testing.T, n int) (d *rig, m memory, stop func()) {
	t.Helper()
	m = newMemory(t)
	d, stop = start(t, pathOptions(t, 2), nil)
	recoverAll(t, d)
	for i := range n {
		mustPut(t, d, m, i, 50_000)
	}
	return d, m, stop
}

// order has the next opening compare all headers with the database.
func order(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, metadata.RebuildName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// forget has the database lose the records of keys, and have old ones again.
func forget(t *testing.T, d *rig, ns []int, old ...database.Entry) {
	t.Helper()
	write(t, d, func(b *metadata.Batch) {
		for i := range old {
			_ = b.Put(&old[i], nil)
		}
		for _, n := range ns {
			_ = b.Delete(keyOf(n), false)
		}
	})
}

// A survey that is tried again counts from the beginning.
func TestSurveyOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, stop := twoPaths(t, 10)
		o := d.instance.o
		stop()
		order(t, o.Paths[0])
		d, _ = start(t, o, nil)
		var totals [2]uint64
		for i := range totals {
			if err := (&recovery{t: d.instance}).read(t.Context()); err != nil {
				t.Fatal(err)
			}
			totals[i] = d.rebuilding.total.Load()
		}
		if totals[0] == 0 || totals[1] != totals[0] {
			t.Errorf("%d bytes are to be surveyed, and %d the next time", totals[0], totals[1])
		}
	})
}

// A rebuild by order brings back records that the database has lost, drops those
// that it should not have, writes damaged headers anew, and all else stays.
func TestRebuildByOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, m, stop := twoPaths(t, 40)
		o := d.instance.o
		deleted, damaged := entryIn(t, d, 7), entryIn(t, d, 11)
		if err := d.Delete(t.Context(), []key.Key{keyOf(7)}); err != nil {
			t.Fatal(err)
		}
		forget(t, d, []int{3, 4, 30}, deleted)
		path := d.segments.find(damaged.Extent.Segment).path
		stop()
		flip(t, path, damaged.Extent.Offset+20)
		flip(t, path, damaged.Extent.Offset+20+database.HeaderBytes/2)

		check := func(lost bool) {
			t.Helper()
			d, stop := start(t, o, nil)
			if got := recoverAll(t, d); len(got) != 39 {
				t.Errorf("%d entries, want 39", len(got))
			}
			for i := range 40 {
				if i != 7 {
					mustGet(t, d, m, i, 50_000)
				}
			}
			wantErr(t, get(t, d, m, 7, 50_000), tier.ErrNotFound)
			if n := d.rebuilding.dropped.Load(); lost && n != 1 {
				t.Errorf("%d records dropped, want the one of what was deleted", n)
			}
			recount(t, d)
			stop()
		}
		order(t, o.Paths[0])
		check(true)
		check(false)
		loseDatabase(t, o.Paths[0]) // all headers are right
		check(false)
	})
}

// Of a rolled back database, whose extents are others' by now, the headers are
// believed, in both paths.
func TestRebuildOfOlderRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, m, stop := twoPaths(t, 30)
		o := d.instance.o
		var old []database.Entry
		var ks []key.Key
		for i := range 20 {
			old, ks = append(old, entryIn(t, d, i)), append(ks, keyOf(i))
		}
		if err := d.Delete(t.Context(), ks); err != nil {
			t.Fatal(err)
		}
		want := []int{5, 100, 101, 102, 103}
		for _, i := range []int{100, 101, 5, 102, 103} { // into their old extents, and one of them anew
			mustPut(t, d, m, i, 70_000)
		}
		forget(t, d, []int{100, 102}, old...)
		stop()
		order(t, o.Paths[0])
		d, _ = start(t, o, nil)
		got := recoverAll(t, d)
		for _, i := range want {
			mustGet(t, d, m, i, 70_000)
		}
		for i := 20; i < 30; i++ {
			want = append(want, i)
			mustGet(t, d, m, i, 50_000)
		}
		if len(got) != len(want) {
			t.Errorf("%d entries, want %d", len(got), len(want))
		}
		for k := range got {
			if !slices.ContainsFunc(want, func(i int) bool { return keyOf(i) == k }) {
				t.Errorf("%x is back", k.Hash[:2])
			}
		}
		recount(t, d)
	})
}
