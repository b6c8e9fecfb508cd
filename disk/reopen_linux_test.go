package disk

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// A tier whose segments take all the room there is keeps them at a restart, also
// where the file system needs blocks of its own for each.
func TestFullTierKeepsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		for i := range 44 {
			mustPut(t, d, m, i, mib-database.HeaderBytes)
		}
		if files := d.segments.usage().files; files != o.CapacityBytes-o.MetaReserveBytes {
			t.Fatalf("segments of %d bytes, want all the room there is", files)
		}
		stored := d.ledger.Stats().Entries
		stop()
		paths, err := filepath.Glob(filepath.Join(o.Paths[0], folders.SegmentPrefix+"*"))
		if err != nil || len(paths) == 0 {
			t.Fatal(paths, err)
		}
		for _, path := range paths {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 8*mib, alignBytes); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		d, _ = start(t, o, nil)
		if got := recoverAll(t, d); len(got) != int(stored) {
			t.Errorf("%d of %d entries were handed over", len(got), stored)
		}
	})
}
