package disk

import (
	"maps"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/filesystem"
	"github.com/kvstored/kvstored/internal/record"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// Keys deleted during a rebuild are not back when the process is killed before
// that is over, and the database, with its notes, is lost once more.
func TestDeletionsOutliveTwoDamages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		for i := range 10 {
			mustPut(t, d, m, i, 50_000)
		}
		stop()
		loseDatabase(t, o.Paths[0])
		d, stop = start(t, o, nil) // and not recovered
		if err := d.Delete(t.Context(), []key.Key{keyOf(3), keyOf(99)}); err != nil {
			t.Fatal(err)
		}
		killed := testOptions(tiertest.Folder(t))
		copyDir(t, o.Paths[0], killed.Paths[0])
		stop()
		loseDatabase(t, killed.Paths[0])
		d, _ = start(t, killed, nil)
		got := recoverAll(t, d)
		if _, back := got[keyOf(3)]; back || len(got) != 9 {
			t.Errorf("%d entries, the deleted one back: %t; want 9 without it", len(got), back)
		}
		if there, err := filesystem.Exists(filepath.Join(killed.Paths[0], deletionsName)); there || err != nil {
			t.Errorf("the notes are left: %t, %v", there, err)
		}
		mustPut(t, d, m, 3, 60_000) // anew, which no note is in the way of
		recount(t, d)
	})
}

// counting counts the syncs of a folder's files.
type counting struct {
	blockio.Folder
	syncs atomic.Int64
}

type countingFile struct {
	blockio.File
	f *counting
}

func (f *counting) Create(path string, size int64) (blockio.File, error) {
	g, err := f.Folder.Create(path, size)
	return countingFile{g, f}, err
}

func (f countingFile) Sync() error {
	f.f.syncs.Add(1)
	return f.File.Sync()
}

// After a deletion the header on the device says so, and a Sync has the segment
// synced, also where nothing was stored since the last one.
func TestSyncCoversTombstones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(t.TempDir())
		own, err := blockio.NewFolder(folderAt(t, o.Paths[0]), false)
		if err != nil {
			t.Fatal(err)
		}
		f := &counting{Folder: own}
		d, _ := start(t, o, f)
		m := newMemory(t)
		mustPut(t, d, m, 1, 50_000)
		if err := d.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		var e record.Entry
		if ok, err := d.db.Entry(keyOf(1), &e); !ok || err != nil {
			t.Fatal(ok, err)
		}
		before := f.syncs.Load()
		if err := d.Delete(t.Context(), []key.Key{keyOf(1)}); err != nil {
			t.Fatal(err)
		}
		page := make([]byte, record.HeaderBytes)
		image, err := os.Open(segmentFiles(t, o.Paths[0])[0])
		if err != nil {
			t.Fatal(err)
		}
		defer image.Close() //nolint:errcheck
		if _, err := image.ReadAt(page, e.Extent.Offset); err != nil {
			t.Fatal(err)
		}
		var h record.Header
		if !d.seal.Open(page, e.Extent.Segment, e.Extent.Offset, &h) || !h.Free || h.Seq <= e.Seq {
			t.Errorf("the header is %+v", h)
		}
		if err := d.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f.syncs.Load() == before {
			t.Error("the tombstone is not synced")
		}
	})
}

// A note that was written in part, for want of room or because of a kill, takes
// no later one with it.
func TestTornNotesOfDeletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := folderAt(t, tiertest.Folder(t))
		noted := func(l *deletionLog, i int) {
			t.Helper()
			if err := l.append([]key.Key{keyOf(i)}, uint64(i)); err != nil {
				t.Fatal(err)
			}
		}
		l := &deletionLog{in: in}
		noted(l, 1)
		noted(l, 2)
		l.close()
		if err := os.Truncate(in.Path(deletionsName), 2*deletionBytes-7); err != nil {
			t.Fatal(err)
		}
		l = &deletionLog{in: in}
		noted(l, 3)
		noted(l, 4)
		l.close()
		got := make(map[key.Key]uint64)
		if err := l.read(got); err != nil {
			t.Fatal(err)
		}
		if want := (map[key.Key]uint64{keyOf(1): 1, keyOf(3): 3, keyOf(4): 4}); !maps.Equal(got, want) {
			t.Errorf("%d notes are read, want those of 1, 3 and 4", len(got))
		}
	})
}
