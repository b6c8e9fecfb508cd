package disk

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// loseDatabase ends a tier's database as a damage of it would.
func loseDatabase(t *testing.T, meta string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(meta, folders.DatabaseName, "MANIFEST"), []byte("garbage, and quite a lot of it"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Entries in extents are back when the database is lost, with their whole
// records; deleted, evicted and replaced ones are not, whether the process was
// closed or killed.
func TestRebuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := pathOptions(t, 2)
		m := newMemory(t)
		d, stop := start(t, o, nil)
		want := make(map[key.Key]tier.Record)
		for i := range 60 {
			e := entryOf(t, m, i, 1000+i*5000)
			e.Depth, e.Tokens = uint32(i), 100+uint32(i)
			if i > 0 {
				e.Parent = keyOf(i - 1).Hash
			}
			if err := d.Put(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			e.Block.Release()
			want[e.Key] = e.Record
		}
		drop := func(ns ...int) {
			for _, n := range ns {
				if err := d.Delete(t.Context(), []key.Key{keyOf(n)}); err != nil {
					t.Fatal(err)
				}
				delete(want, keyOf(n))
			}
		}
		drop(3, 4, 5, 20, 40, 59)
		mustPut(t, d, m, 100, 9000) // into a free run, so that its header covers the rest of that
		e := entryOf(t, m, 4, 21_000)
		if err := d.Put(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		e.Block.Release()
		want[e.Key] = e.Record
		want[keyOf(100)] = tier.Record{Key: keyOf(100), Tokens: 256, Size: 9000, Sum: 0}

		killed := pathOptions(t, 2) // as a kill would leave it: all is with the kernel
		for i := range o.Paths {
			copyDir(t, o.Paths[i], killed.Paths[i])
		}
		stop()
		for name, o := range map[string]Options{"closed": o, "killed": killed} {
			for range 2 { // what a rebuild wrote is there to be lost again
				loseDatabase(t, o.Paths[0])
				d, stop := start(t, o, nil)
				got := recoverAll(t, d)
				for k, r := range want {
					if g, is := got[k]; !is || g != r && r.Sum != 0 {
						t.Errorf("%s: %x is %+v, want %+v", name, k.Hash[:2], g, r)
					}
				}
				if len(got) != len(want) {
					t.Errorf("%s: %d entries are back, want %d", name, len(got), len(want))
				}
				for i := range 60 {
					if _, is := want[keyOf(i)]; is && i != 4 {
						mustGet(t, d, m, i, 1000+i*5000)
					}
				}
				mustPut(t, d, m, 200, 50_000)
				mustGet(t, d, m, 200, 50_000)
				if err := d.Delete(t.Context(), []key.Key{keyOf(200)}); err != nil {
					t.Fatal(err)
				}
				recount(t, d)
				stop()
			}
		}
	})
}

// A database that comes back without its last commits, which Badger does not
// mind, is damaged: their deletions would be undone, and their puts be lost.
func TestLostCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		for i := range 20 {
			mustPut(t, d, m, i, 50_000)
		}
		stop()
		older := filepath.Join(tiertest.Folder(t), "badger")
		copyDir(t, filepath.Join(o.Paths[0], folders.DatabaseName), older)
		d, stop = start(t, o, nil)
		recoverAll(t, d)
		if err := d.Delete(t.Context(), []key.Key{keyOf(7)}); err != nil {
			t.Fatal(err)
		}
		mustPut(t, d, m, 30, 50_000)
		stop()
		if err := os.RemoveAll(filepath.Join(o.Paths[0], folders.DatabaseName)); err != nil {
			t.Fatal(err)
		}
		copyDir(t, older, filepath.Join(o.Paths[0], folders.DatabaseName))
		d, _ = start(t, o, nil)
		got := recoverAll(t, d)
		if _, back := got[keyOf(7)]; back || len(got) != 20 {
			t.Fatalf("%d entries, the deleted one back: %t; want 20 without it", len(got), back)
		}
		mustGet(t, d, m, 30, 50_000)
		recount(t, d)
	})
}

// A payload that holds headers of other entries, each at the place where it would
// be right, is a payload: before and after it is freed, and when its extent is
// partly in use again.
func TestHeadersAreNotImitated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		const size = 60_000
		for i := range 20 {
			mustPut(t, d, m, i, size)
		}
		// All of the segment as it is now: every header, byte for byte.
		f, err := os.Open(segmentFiles(t, o.Paths[0])[0])
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() //nolint:errcheck
		image := make([]byte, 8*mib)
		if _, err := io.ReadFull(f, image); err != nil {
			t.Fatal(err)
		}
		var all []key.Key
		for i := range 20 {
			all = append(all, keyOf(i))
		}
		if err := d.Delete(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		// A chunk that lies where they did, and is what lay there: from the second
		// page of the file on, so that all but the first header are in place.
		spoof := func(n, size int) {
			b, err := m.Alloc(t.Context(), size)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Release()
			copy(b.Bytes(), image[database.HeaderBytes:])
			sum := b.Seal()
			r := tier.Record{Key: keyOf(n), Tokens: 256, Size: uint32(size), Sum: sum}
			if err := d.Put(t.Context(), tier.Entry{Record: r, Block: b}); err != nil {
				t.Fatal(err)
			}
		}
		check := func(name string, o Options, want ...int) {
			t.Helper()
			copied := testOptions(tiertest.Folder(t))
			copyDir(t, o.Paths[0], copied.Paths[0])
			loseDatabase(t, copied.Paths[0])
			c, stop := start(t, copied, nil)
			defer stop()
			got := recoverAll(t, c)
			for _, n := range want {
				if _, is := got[keyOf(n)]; !is {
					t.Errorf("%s: %d is not back", name, n)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%s: %d entries are back, want %v", name, len(got), want)
			}
		}
		spoof(50, 20*(size+8192))
		var e database.Entry
		if found, err := d.db.Entry(keyOf(50), &e); err != nil || !found || e.Extent.Offset != 0 {
			t.Fatalf("the imitation does not lie where it should: %+v, %v", e.Extent, err)
		}
		check("stored", o, 50)
		if err := d.Delete(t.Context(), []key.Key{keyOf(50)}); err != nil {
			t.Fatal(err)
		}
		check("deleted", o)
		mustPut(t, d, m, 51, 100_000) // over the tombstone, and the first two of the old headers
		check("used again in part", o, 51)
		if err := d.Delete(t.Context(), []key.Key{keyOf(51)}); err != nil {
			t.Fatal(err)
		}
		check("and that deleted", o)
		stop()
	})
}
