package database_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/test/faultfs"
)

// A compaction that cannot write one of its tables ends the process. The records
// that it read are there in the next one, and the deleted ones are not.
func TestCompactionEIO(t *testing.T) {
	const n = 4000
	fs := faultfs.Mount(t)
	dir := filepath.Join(fs.Dir, "db")
	isDeleted := func(i int) bool { return i%3 == 0 }
	for table := 2; table <= 3; table++ { // the first is that of the flush
		d := open(t, dir)
		fill(t, d, n)
		if err := d.Compact(); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < n; i += 3 {
			d.Batch().Delete(key(i))
		}
		if err := d.Batch().Flush(); err != nil {
			t.Fatal(err)
		}
		if err := fs.FailWrites(fmt.Sprintf("%06d.sst", lastTable(t, dir)+table)); err != nil {
			t.Fatal(err)
		}
		err := d.Compact()
		var death *database.Death
		if met, metErr := fs.Met(); metErr != nil {
			t.Fatal(metErr)
		} else if met == 0 {
			t.Errorf("table %d is not written", table)
		} else if !errors.As(err, &death) || !strings.Contains(death.Words, syscall.EIO.Error()) {
			t.Errorf("a compaction that lacks table %d: %v", table, err)
		}
		d.Kill(errors.New("it has ended"))
		if err := fs.Heal(); err != nil {
			t.Fatal(err)
		}
		<-d.Ended()
		d = open(t, dir)
		check(t, d, n, isDeleted)
		if err := d.Compact(); err != nil {
			t.Fatal(err)
		}
		check(t, d, n, isDeleted)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// lastTable is the highest number of a table in dir.
func lastTable(t *testing.T, dir string) (last int) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		var n int
		if _, err := fmt.Sscanf(filepath.Base(path), "%06d.sst", &n); err != nil {
			t.Fatal(err)
		}
		last = max(last, n)
	}
	return last
}
