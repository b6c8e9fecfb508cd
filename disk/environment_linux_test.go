package disk

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// However few files may be opened, a start that cannot do with them says so,
// and takes nothing for damage.
func TestOpenWithoutFiles(t *testing.T) {
	o := testOptions(t.TempDir())
	m := newMemory(t)
	for i := range 3 { // a table each, and a log
		d, stop := start(t, o, nil)
		recoverAll(t, d)
		mustPut(t, d, m, i, 100_000)
		stop()
	}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	limit := func(n uint64) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
	}
	defer limit(before.Cur)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	lowest := uint64(null.Fd()) // that is free
	if err := null.Close(); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for {
		limit(lowest + uint64(refused))
		d, err := Open(o)
		limit(before.Cur)
		if err == nil {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			break
		}
		refused++
		if !strings.Contains(err.Error(), syscall.EMFILE.Error()) || !strings.Contains(err.Error(), remedy(syscall.EMFILE)) {
			t.Fatalf("with %d files: %v", refused, err)
		}
	}
	t.Logf("refused with fewer than %d files", refused)
	if refused < spareFiles {
		t.Errorf("refused %d times", refused)
	}
	keepsAll(t, o, m, 3)
}
