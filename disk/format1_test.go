package disk

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/cespare/xxhash/v2"
	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/arena/extent"
	"github.com/kvstored/kvstored/internal/database/record"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// writeFormat1 makes a folder as programs left it that knew no headers: a marker
// of two lines, records of version 1, and extents that begin with the payload.
// Key i has sizeOf(i) bytes.
func writeFormat1(t *testing.T, o Options, n int, sizeOf func(i int) int) {
	t.Helper()
	dir := o.Paths[0]
	d, stop := start(t, o, nil)
	segment := make([]byte, o.SegmentBytes)
	off := 0
	write(t, d, func(b *metadata.Batch) {
		for i := range n {
			size := sizeOf(i)
			payload := segment[off : off+size]
			fill(payload, i)
			e := record.Entry{
				Key: keyOf(i), Tokens: 256, Size: uint32(size), Sum: xxh3.Hash(payload), Seq: uint64(i + 1), Created: now(), Used: now(),
				Extent: record.Extent{Segment: 1, Offset: int64(off), Bytes: uint32(extent.RoundUp(int64(size)))},
			}
			dbKey := record.EntryKey(e.Key)
			v := record.AppendEntry(nil, &e)
			v[0] = 1
			body := v[:len(v)-8]
			binary.LittleEndian.PutUint64(v[len(body):], xxhash.Sum64(append(dbKey[:], body...)))
			b.Set(dbKey[:], v)
			off += int(e.Extent.Bytes)
		}
	})
	m, _, err := folders.ReadMarker(dir)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	for _, name := range []string{folders.FormatCopy, metadata.WitnessName, cleanName, folders.MembersName} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		folders.FormatName: "kvstored-disk 1\nset " + m.Set + "\n",
		segmentName(1):     string(segment),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A folder of format 1 is read on: its entries are served, before and after new
// ones, and after a rebuild by order. Without its database only the new ones are
// back.
func TestFormat1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		size := func(i int) int { return 1000 + i*9000 }
		writeFormat1(t, o, 20, size)
		if err := Check(o); err != nil {
			t.Fatal(err)
		}
		d, stop := start(t, o, nil)
		recoverAll(t, d)
		all := func(d *rig) {
			t.Helper()
			for i := range 20 {
				if i != 5 {
					mustGet(t, d, m, i, size(i))
				}
			}
			recount(t, d)
		}
		mustGet(t, d, m, 5, size(5))
		if err := d.Delete(t.Context(), []key.Key{keyOf(5)}); err != nil {
			t.Fatal(err)
		}
		all(d)
		for i := range 3 {
			mustPut(t, d, m, 100+i, 20_000) // one of them fits where 5 was
		}
		stop()
		if mark, _, err := folders.ReadMarker(o.Paths[0]); err != nil || mark.Secret == nil {
			t.Fatalf("the marker is %+v, %v", mark, err)
		}
		order(t, o.Paths[0])
		d, stop = start(t, o, nil)
		if got := recoverAll(t, d); len(got) != 22 {
			t.Errorf("%d entries after a rebuild by order, want 22", len(got))
		}
		all(d)
		stop()
		loseDatabase(t, o.Paths[0])
		d, _ = start(t, o, nil)
		if got := recoverAll(t, d); len(got) != 3 {
			t.Errorf("%d entries without the database, want 3", len(got))
		}
		for i := range 3 {
			mustGet(t, d, m, 100+i, 20_000)
		}
		wantErr(t, get(t, d, m, 7, size(7)), tier.ErrNotFound)
	})
}
