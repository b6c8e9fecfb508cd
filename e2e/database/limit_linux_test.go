package database_test

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A commit that cannot have a new log fails, and what was committed before is there in the
// next process.
func TestCommitBeyondLimit(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir)
	fill(t, d, 20)
	if err := unix.Prlimit(d.Pid(), unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: unix.RLIM_INFINITY}, nil); err != nil { // a log has 2 MiB
		t.Fatal(err)
	}
	for n := range 2000 { // several memtables
		d.Batch().Set(key(1000+n), make([]byte, 4_000))
	}
	if err := d.Batch().Flush(); err == nil {
		t.Error("a commit beyond the limit is said to be in the database")
	}
	d.Kill(nil)
	<-d.Ended()
	d = open(t, dir)
	found := 0
	keys := make([][]byte, 20)
	for i := range keys {
		keys[i] = key(i)
	}
	if err := d.Get(keys, func(_ int, v []byte) {
		if v != nil {
			found++
		}
	}); err != nil || found != len(keys) {
		t.Errorf("%d of %d pairs are there: %v", found, len(keys), err)
	}
}
