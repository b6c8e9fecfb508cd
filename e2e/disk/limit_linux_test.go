package disk_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/tier"
)

// A database that cannot have a new log breaks, and the tier is open again soon after it
// can: the stored entries are there, and more can be stored.
func TestOpenAfterLimit(t *testing.T) {
	const size = 4_000
	o := options(t.TempDir())
	o.InlineMax = size
	m := newMemory(t)
	k := start(t, o)
	works(t, k, m, 0)                             // makes the segment
	lift := limitFiles(t, k.DatabasePid(), mib/2) // a log has 1 MiB
	stored, err := []int(nil), error(nil)
	for n := 1; err == nil && n < 1000; n++ {
		if err = put(t, k, m, n, size); err == nil {
			stored = append(stored, n)
		}
	}
	if err == nil {
		t.Fatal("the limit is not met")
	}
	lift()
	await(t, "nothing is stored again", func() bool { return put(t, k, m, 5000, size) == nil })
	for _, n := range stored {
		if err := get(t, k, m, n, size); err != nil {
			t.Errorf("get %d: %v", n, err)
		}
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	got := 0
	if err := start(t, o).Recover(t.Context(), func(rs []tier.Record) { got += len(rs) }); err != nil || got != len(stored)+2 {
		t.Errorf("%d entries after a restart, want %d: %v", got, len(stored)+2, err)
	}
}

// limitFiles bounds how large a process may make a file until lift is called.
func limitFiles(t *testing.T, pid int, bytes uint64) (lift func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &was); err != nil {
		t.Fatal(err)
	}
	set := func(cur uint64) {
		err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: cur, Max: was.Max}, nil)
		if err != nil && !errors.Is(err, unix.ESRCH) { // it has been replaced
			t.Fatal(err)
		}
	}
	set(bytes)
	return func() { set(was.Cur) }
}
