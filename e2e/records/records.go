package records

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/kvstored/kvstored/internal/database"
)

// Sum is what the records of a disk tier say.
type Sum struct{ Entries, ExtentBytes int64 }

// Count reads every record that a killed daemon left in the first folder of its disk, from a copy of
// the database, and checks that no byte is owned twice.
func Count(t testing.TB, meta string) Sum {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(meta, "badger"))); err != nil {
		t.Fatal(err)
	}
	db, err := badger.Open(badger.DefaultOptions(dir).WithLogger(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var all []database.Extent
	var sum Sum
	err = db.View(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.DefaultIteratorOptions)
		defer it.Close()
		for it.Seek(database.EntryPrefix()); it.ValidForPrefix(database.EntryPrefix()); it.Next() {
			var e database.Entry
			err := it.Item().Value(func(v []byte) error { return database.DecodeEntry(&e, it.Item().Key(), v) })
			if err != nil {
				return err
			}
			sum.Entries++
			sum.ExtentBytes += int64(e.Extent.Bytes)
			if !e.Inline {
				all = append(all, e.Extent)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b database.Extent) int {
		return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Offset, b.Offset))
	})
	for i := 1; i < len(all); i++ {
		if all[i-1].Segment == all[i].Segment && all[i-1].End() > all[i].Offset {
			t.Errorf("two records own bytes of one extent: %+v and %+v", all[i-1], all[i])
		}
	}
	return sum
}
