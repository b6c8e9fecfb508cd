package disk

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"
	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/test/logtest"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

func TestCorruptPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		for i := range 4 {
			mustPut(t, d, m, i, 100_000)
		}
		mustPut(t, d, m, 9, 100) // inline
		e := entryIn(t, d, 2)
		dbKey := database.PayloadKey(keyOf(9))
		write(t, d, func(b *metadata.Batch) { b.Set(dbKey[:], make([]byte, 100)) })
		stop()
		flip(t, segmentFiles(t, o.Paths[0])[0], e.Extent.Offset+99_999)

		d, _ = start(t, o, nil)
		recoverAll(t, d)
		for i := range 4 {
			if i == 2 {
				wantErr(t, get(t, d, m, i, 100_000), tier.ErrCorrupt)
				wantErr(t, get(t, d, m, i, 100_000), tier.ErrNotFound)
				mustPut(t, d, m, i, 100_000)
			}
			mustGet(t, d, m, i, 100_000)
		}
		wantErr(t, get(t, d, m, 9, 100), tier.ErrCorrupt)
		wantErr(t, get(t, d, m, 9, 100), tier.ErrNotFound)
		if s := d.Stats(); s.Corrupt != 2 || s.Counters["corrupt_get"] != 2 {
			t.Fatalf("corrupt: %d", s.Corrupt)
		}
		if blocks := m.Stats().Blocks; blocks != 0 {
			t.Fatalf("%d blocks leaked", blocks)
		}
	})
}

// removing is an allocator that has a key removed before it allocates.
type removing struct {
	memory
	d *rig
	n int
}

func (r removing) Alloc(ctx context.Context, n int) (arena.Block, error) {
	if err := r.d.Delete(ctx, []key.Key{keyOf(r.n)}); err != nil {
		return arena.Block{}, err
	}
	return r.memory.Alloc(ctx, n)
}

// TestRemovedWhileRead: a payload in the database that is removed between the look-up
// and the read is no damage, and one in an extent is still read.
func TestRemovedWhileRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		d, _ := start(t, testOptions(tiertest.Folder(t)), nil)
		mustPut(t, d, m, 1, 100) // inline
		_, err := d.Get(t.Context(), keyOf(1), removing{m, d, 1})
		wantErr(t, err, tier.ErrNotFound)
		mustPut(t, d, m, 2, 100_000)
		b, err := d.Get(t.Context(), keyOf(2), removing{m, d, 2})
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
		if s := d.Stats(); s.Corrupt != 0 || s.Counters["corrupt_get"] != 0 {
			t.Fatalf("corrupt: %d", s.Corrupt)
		}
	})
}

func flip(t *testing.T, path string, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck
	var b [1]byte
	if _, err := f.ReadAt(b[:], off); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x40
	if _, err := f.WriteAt(b[:], off); err != nil {
		t.Fatal(err)
	}
}

func TestTruncatedAndOrphanSegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		for i := range 12 {
			mustPut(t, d, m, i, mib)
		}
		mustGet(t, d, m, 3, mib)
		stop()
		first := segmentFiles(t, o.Paths[0])[0]
		if err := os.Truncate(first, 2*mib+mib/2); err != nil {
			t.Fatal(err)
		}
		orphan := filepath.Join(o.Paths[0], segmentName(50))
		if err := os.WriteFile(orphan, make([]byte, mib), 0o600); err != nil {
			t.Fatal(err)
		}
		var log logtest.Book
		o.Log = zerolog.New(&log)
		d, _ = start(t, o, nil)
		got := recoverAll(t, d)
		if len(got) == 12 || len(got) < 4 {
			t.Fatalf("recovered %d of 12 after the cut", len(got))
		}
		if lost := fmt.Sprintf(`"chunks":%d,"damaged_records":0`, 12-len(got)); !strings.Contains(log.String(), lost) {
			t.Errorf("the log has no %s: %s", lost, log.String())
		}
		for i := range 12 {
			if _, is := got[keyOf(i)]; is {
				mustGet(t, d, m, i, mib)
			} else {
				wantErr(t, get(t, d, m, i, mib), tier.ErrNotFound)
			}
		}
		if _, err := os.Stat(orphan); !os.IsNotExist(err) {
			t.Fatalf("orphan segment is still there: %v", err)
		}
		mustPut(t, d, m, 99, 5000)
		checkBooks(t, d)
	})
}

func TestDamagedDatabaseIsMovedAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		mustPut(t, d, m, 1, mib)
		for i := range 6 {
			mustPut(t, d, m, 10+i, 100) // inline
		}
		stop()
		forgetInline(t, filepath.Join(o.Paths[0], metadata.WitnessName))
		d, stop = start(t, o, nil)
		recoverAll(t, d)
		mustPut(t, d, m, 20, 100)
		if err := d.Delete(t.Context(), []key.Key{keyOf(10), keyOf(11), keyOf(20), keyOf(99)}); err != nil {
			t.Fatal(err)
		}
		stop()
		path := filepath.Join(o.Paths[0], folders.DatabaseName, "MANIFEST")
		if err := os.WriteFile(path, []byte("garbage, and quite a lot of it"), 0o600); err != nil {
			t.Fatal(err)
		}
		var log logtest.Book
		o.Log = zerolog.New(&log)
		d, _ = start(t, o, nil)
		if !strings.Contains(log.String(), "moved aside") || !strings.Contains(log.String(), `"small_payloads_about":4,`) {
			t.Fatalf("not in the log: the damage, or that 4 payloads are lost: %s", log.String())
		}
		wantErr(t, get(t, d, m, 1, mib), tier.ErrNotFound) // not known yet
		if got := recoverAll(t, d); len(got) != 1 {
			t.Fatalf("%d entries are back, want 1", len(got))
		}
		mustGet(t, d, m, 1, mib)
		recount(t, d)
	})
}

// forgetInline has a witness be that of an older program, which knew no number of payloads.
func forgetInline(t *testing.T, witness string) {
	t.Helper()
	text, err := os.ReadFile(witness)
	if err != nil {
		t.Fatal(err)
	}
	clear(text[16+36:][:4])
	text = binary.LittleEndian.AppendUint64(text[:len(text)-8], xxh3.Hash(text[:len(text)-8]))
	if err := os.WriteFile(witness, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A log, or a log of values, that could not be sized when the file system was full is no
// damage: what lies in the database is there.
func TestEmptyLogIsNoDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		mustPut(t, d, m, 1, mib)
		mustPut(t, d, m, 2, 100)
		stop()
		for _, name := range []string{"00099.mem", "000099.vlog"} {
			if err := os.WriteFile(filepath.Join(o.Paths[0], folders.DatabaseName, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			d, stop = start(t, o, nil)
			if got := recoverAll(t, d); len(got) != 2 {
				t.Errorf("%s: %d entries are back, want 2", name, len(got))
			}
			mustGet(t, d, m, 2, 100)
			stop()
		}
	})
}

func TestStartsThatNeverEndAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		mustPut(t, d, m, 1, mib)
		stop()
		starts := filepath.Join(o.Paths[0], metadata.StartsName)
		if err := os.WriteFile(starts, []byte("xxx"), 0o600); err != nil { // a letter for each
			t.Fatal(err)
		}
		d, _ = start(t, o, nil)
		wantErr(t, get(t, d, m, 1, mib), tier.ErrNotFound)
		recoverAll(t, d)
		if _, err := os.Stat(starts); !os.IsNotExist(err) {
			t.Fatalf("starts are still counted: %v", err)
		}
	})
}
