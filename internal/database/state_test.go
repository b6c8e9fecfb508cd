package database_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// record is the key and the value of a record; the database does not look into it.
func record(i int, v string) (k, value []byte) {
	return fmt.Appendf(nil, "%s%03d", database.EntryPrefix(), i), []byte(strings.Repeat(v, 100))
}

// A database whose commits wrote over records, deleted them, also some that were not there, and
// did so several times in one commit of several transactions, is whole.
func TestWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(tiertest.Folder(t), "db")
		d := open(t, dir)
		isWhole(t, d)
		for range 3 {
			for i := range 1500 {
				d.Batch().Set(record(i%900, fmt.Sprint(i%7)))
				k, _ := record(i*13%1000, "")
				d.Batch().Delete(k)
			}
			if err := d.Batch().Flush(); err != nil {
				t.Fatal(err)
			}
			isWhole(t, d)
			number := d.Commits()
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if d = open(t, dir); d.Commits() != number || number < 2 {
				t.Errorf("%d commits, and %d before it was closed", d.Commits(), number)
			}
			isWhole(t, d)
		}
	})
}

func isWhole(t *testing.T, d *database.DB) {
	t.Helper()
	if whole, err := d.Check(false); !whole || err != nil {
		t.Errorf("the database is not whole: %v", err)
	}
}

// A database that has lost a table says so, until it is told to take the rest for whole. Its
// newest commits are in another table.
func TestNotWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(tiertest.Folder(t), "db")
		manifest := filepath.Join(dir, "MANIFEST")
		var text []byte
		for i := range 2 {
			d := open(t, dir)
			d.Batch().Set(record(i, "v"))
			if err := d.Batch().Flush(); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil { // makes a table
				t.Fatal(err)
			}
			now, err := os.ReadFile(manifest)
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 { // all but the list of the first table
				now = append(now[:8:8], now[len(text):]...)
				if err := os.WriteFile(manifest, now, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			text = now
		}
		d := open(t, dir)
		for _, mend := range []bool{false, true} {
			if whole, err := d.Check(mend); whole || err != nil {
				t.Errorf("it is said to be whole: %v", err)
			}
			d.Batch().Set(record(7, "v"))
			if err := d.Batch().Flush(); err != nil {
				t.Fatal(err)
			}
		}
		isWhole(t, d)
	})
}
