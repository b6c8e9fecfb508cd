package disk

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/tier/tiertest"
)

// However few files may be opened, a start that cannot do with them says so,
// and takes nothing for damage.
func TestOpenWithoutFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		for i := range 3 { // a table each, and a log
			d, stop := start(t, o, nil)
			recoverAll(t, d)
			mustPut(t, d, m, i, 100_000)
			stop()
		}
		refused := 0
		for {
			lift := limitOpen(t, refused)
			d, err := openRig(o)
			lift()
			if err == nil {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
				break
			}
			refused++
			if !strings.Contains(err.Error(), syscall.EMFILE.Error()) || !strings.Contains(err.Error(), "raise the limit of open files") {
				t.Fatalf("with %d files: %v", refused, err)
			}
		}
		t.Logf("refused with fewer than %d files", refused)
		if refused < 8 {
			t.Errorf("refused %d times", refused)
		}
		keepsAll(t, o, m, 3)
	})
}

// limitOpen leaves room for n more open files, until it is lifted.
func limitOpen(t *testing.T, n int) (lift func()) {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	lowest := uint64(null.Fd()) // that is free
	var before unix.Rlimit
	if err := errors.Join(null.Close(), unix.Getrlimit(unix.RLIMIT_NOFILE, &before)); err != nil {
		t.Fatal(err)
	}
	set := func(to uint64) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: to, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
	}
	set(lowest + uint64(n))
	return func() { set(before.Cur) }
}
