package disk

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/record"
)

// A database that cannot have a new log breaks, and is open again soon after it
// can: the stored entries are there, and more can be stored.
func TestMendAfterLimit(t *testing.T) {
	const size = 4_000
	o := testOptions(t.TempDir())
	o.InlineMax, o.Database = size, nil
	m := newMemory(t)
	d, stop := startBreakable(t, o)
	mustPut(t, d, m, 0, 100_000) // makes the segment
	mend := keepBroken(d)
	lift := limitFiles(t, d.db.Pid(), mib/2) // a log has 1 MiB
	stored, err := []int(nil), error(nil)
	for n := 1; err == nil && n < 1000; n++ {
		if err = put(t, d, m, n, size); err == nil {
			stored = append(stored, n)
		}
	}
	wantErr(t, err, metadata.ErrUncertain)
	wantErr(t, put(t, d, m, 5000, size), metadata.ErrBroken)
	lift()
	mend()
	awaitMended(t, d)
	for _, n := range stored {
		mustGet(t, d, m, n, size)
	}
	mustPut(t, d, m, 5000, size)
	awaitCommitted(t, d)
	recount(t, d)
	stop()
	d, _ = start(t, o, nil)
	if got := recoverAll(t, d); len(got) != len(stored)+2 {
		t.Errorf("%d entries after a restart, want %d", len(got), len(stored)+2)
	}
}

// A commit that fails ends when Badger does not read its changes any more.
func TestFailedCommitLetsGo(t *testing.T) {
	o := testOptions(t.TempDir())
	o.Database = nil
	d, _ := start(t, o, nil)
	lift := limitFiles(t, d.db.Pid(), mib/2)
	l := &lending{done: make(chan error, 1)}
	for n := range 2000 { // several memtables
		l.keys, l.values = append(l.keys, record.PayloadKey(keyOf(n))), append(l.values, make([]byte, 4_000))
	}
	if err := d.commits.Add(l); err != nil {
		t.Fatal(err)
	}
	if err := <-l.done; err == nil {
		t.Error("a change of a failed commit was told that it is in the database")
	}
	lift()
	awaitMended(t, d)
}

// lending are payloads whose memory is written to once their commit has ended.
type lending struct {
	keys   [][record.KeyBytes]byte
	values [][]byte
	done   chan error
}

func (l *lending) Apply(b *metadata.Batch) error {
	for n := range l.keys {
		b.Set(l.keys[n][:], l.values[n])
	}
	return nil
}

func (l *lending) Committed(err error) {
	for _, value := range l.values {
		for i := range value { // a race, if Badger still reads it
			value[i] = 1
		}
	}
	l.done <- err
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
