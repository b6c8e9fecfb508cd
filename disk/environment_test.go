package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// keepsAll checks that a refused start has changed nothing, and that the next
// one finds all n entries.
func keepsAll(t *testing.T, o Options, m memory, n int) {
	t.Helper()
	for _, name := range []string{metadata.DamagedName, metadata.StartsName} {
		if _, err := os.Stat(filepath.Join(o.Paths[0], name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
	d, _ := start(t, o, nil)
	if got := recoverAll(t, d); len(got) != n {
		t.Errorf("%d of %d entries are back", len(got), n)
	}
	for i := range n {
		mustGet(t, d, m, i, 100_000)
	}
}

// A database that may not be opened is not damaged.
func TestOpenWithoutRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if os.Geteuid() == 0 {
			t.Skip("root may open everything")
		}
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		mustPut(t, d, m, 0, 100_000)
		stop()
		files, err := os.ReadDir(filepath.Join(o.Paths[0], folders.DatabaseName))
		if err != nil || len(files) < 3 {
			t.Fatalf("%d files, %v", len(files), err)
		}
		for _, f := range files {
			path := filepath.Join(o.Paths[0], folders.DatabaseName, f.Name())
			if err := os.Chmod(path, 0); err != nil {
				t.Fatal(err)
			}
			if _, err := openRig(o); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "name a folder that the daemon's user may write to") {
				t.Errorf("%s may not be opened: %v", f.Name(), err)
			}
			if err := os.Chmod(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		keepsAll(t, o, m, 1)
	})
}

// Nor is one that has no room to be opened in.
func TestOpenWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		mustPut(t, d, m, 0, 100_000)
		stop()
		o.free = func(string) (int64, error) { return mib, nil }
		if _, err := openRig(o); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), filepath.Join(o.Paths[0], folders.DatabaseName)) {
			t.Errorf("without room: %v", err)
		}
		o.free = nil
		keepsAll(t, o, m, 1)
	})
}
