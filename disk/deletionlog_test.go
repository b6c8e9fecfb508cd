package disk

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// Keys deleted during a rebuild are not back when the process is killed before
// that is over, and the database is lost once more.
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
		if there, err := folderAt(t, killed.Paths[0]).Exists(deletionsName); there || err != nil {
			t.Errorf("the notes are left: %t, %v", there, err)
		}
		mustPut(t, d, m, 3, 60_000) // anew, which no note is in the way of
		recount(t, d)
	})
}

// A key whose tombstone the device did not take is not back when the process is killed
// and the database lost.
func TestDeletionWithoutTombstone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		f := newFaulty(t, o.Paths[0])
		d, stop := start(t, o, f)
		m := newMemory(t)
		for i := range 3 {
			mustPut(t, d, m, i, 50_000)
		}
		f.refuse(syscall.EIO)
		if err := d.Delete(t.Context(), []key.Key{keyOf(1)}); err != nil {
			t.Fatal(err)
		}
		killed := testOptions(tiertest.Folder(t))
		copyDir(t, o.Paths[0], killed.Paths[0])
		f.refuse(nil)
		stop()
		loseDatabase(t, killed.Paths[0])
		d, _ = start(t, killed, nil)
		got := recoverAll(t, d)
		if _, back := got[keyOf(1)]; back || len(got) != 2 {
			t.Errorf("%d entries, the deleted one back: %t; want 2 without it", len(got), back)
		}
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
		e := entryIn(t, d, 1)
		before := f.syncs.Load()
		if err := d.Delete(t.Context(), []key.Key{keyOf(1)}); err != nil {
			t.Fatal(err)
		}
		page := make([]byte, database.HeaderBytes)
		image, err := os.Open(segmentFiles(t, o.Paths[0])[0])
		if err != nil {
			t.Fatal(err)
		}
		defer image.Close() //nolint:errcheck
		if _, err := image.ReadAt(page, e.Extent.Offset); err != nil {
			t.Fatal(err)
		}
		var h database.Header
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
		l := newDeletionLog(in, time.Second)
		noted(l, 1)
		noted(l, 2)
		l.close()
		if err := os.Truncate(in.Path(deletionsName), 2*deletionBytes-7); err != nil {
			t.Fatal(err)
		}
		l = newDeletionLog(in, time.Second)
		noted(l, 3)
		noted(l, 4)
		l.close()
		got, err := l.read()
		if err != nil {
			t.Fatal(err)
		}
		if want := (map[key.Key]uint64{keyOf(1): 1, keyOf(3): 3, keyOf(4): 4}); !maps.Equal(got, want) {
			t.Errorf("%d notes are read, want those of 1, 3 and 4", len(got))
		}
	})
}

// A deletion is noted also where it is asked for again, and where its key had left for
// another reason, while the device takes no tombstone: no header brings it back when the
// database is lost. Until then the tier is to be asked.
func TestDeletionsAskedAgain(t *testing.T) {
	for _, how := range []string{"not noted before", "evicted before"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := testOptions(tiertest.Folder(t))
				f := newFaulty(t, o.Paths[0])
				d, stop := start(t, o, f)
				m := newMemory(t)
				for i := range 3 {
					mustPut(t, d, m, i, 50_000)
				}
				f.refuse(syscall.EIO)
				ks := []key.Key{keyOf(1)}
				if how == "evicted before" {
					if err := (&reclaim{t: d.instance}).evictFrom(t.Context(), d.segments.all()[0], ks); !blockio.IsFault(err) {
						t.Fatalf("the eviction: %v, want a fault of the device", err)
					}
				} else {
					blocked := filepath.Join(o.Paths[0], deletionsName)
					if err := os.Mkdir(blocked, 0o700); err != nil {
						t.Fatal(err)
					}
					if err := d.Delete(t.Context(), ks); err == nil {
						t.Fatal("a deletion that is noted nowhere is answered")
					}
					if err := os.Remove(blocked); err != nil {
						t.Fatal(err)
					}
				}
				if d.Has(keyOf(1)) || !d.IsPending(keyOf(1)) {
					t.Error("the tier would not be asked again")
				}
				if err := d.Delete(t.Context(), ks); err != nil {
					t.Fatal(err)
				}
				killed := testOptions(tiertest.Folder(t))
				copyDir(t, o.Paths[0], killed.Paths[0])
				f.refuse(nil)
				synctest.Wait()
				time.Sleep(2 * tombRetry)
				if d.IsPending(keyOf(1)) {
					t.Error("it is pending when all headers are written")
				}
				stop()
				loseDatabase(t, killed.Paths[0])
				d, _ = start(t, killed, nil)
				got := recoverAll(t, d)
				if _, back := got[keyOf(1)]; back || len(got) != 2 {
					t.Errorf("%d entries, want the two that were not deleted", len(got))
				}
			})
		})
	}
}

// What is noted while the notes before are about to be forgotten stays.
func TestNotesDuringRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := folderAt(t, tiertest.Folder(t))
		l := newDeletionLog(in, time.Second)
		defer l.close()
		for i := range 2 {
			end, err := l.sync()
			if err != nil {
				t.Fatal(err)
			}
			if err := l.append([]key.Key{keyOf(i)}, 1); err != nil {
				t.Fatal(err)
			}
			if gone, err := l.remove(end); gone || err != nil {
				t.Fatalf("removed: %v, %v", gone, err)
			}
		}
		if got, err := l.read(); len(got) != 2 || err != nil {
			t.Errorf("%d notes, %v; want 2", len(got), err)
		}
		end, err := l.sync()
		if err != nil {
			t.Fatal(err)
		}
		if gone, err := l.remove(end); !gone || err != nil {
			t.Fatalf("removed: %v, %v", gone, err)
		}
		if err := l.append([]key.Key{keyOf(5)}, 1); err != nil {
			t.Fatal(err)
		}
		if got, err := l.read(); len(got) != 1 || err != nil {
			t.Errorf("%d notes after the removal, %v; want the one that came later", len(got), err)
		}
	})
}

// A device that hangs costs each note one timeout and no goroutine, and does not keep the
// tier from its end.
func TestNotesOnDeviceThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newDeletionLog(folderAt(t, tiertest.Folder(t)), time.Second)
		l.turn <- struct{}{} // a write that does not come back
		begun := time.Now()
		if err := l.append([]key.Key{keyOf(1)}, 1); !errors.Is(err, blockio.ErrHung) {
			t.Errorf("a note: %v, want that the device hangs", err)
		}
		l.close()
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("it took %v, want a timeout for each", took)
		}
	})
}
