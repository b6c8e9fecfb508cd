package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/database/databasetest"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// TestCheck: Check tells why Open would fail, or that it would not, and changes
// no file.
func TestCheck(t *testing.T) {
	at := func(path ...string) Options {
		return Options{Paths: path, CapacityBytes: 256 * mib, SegmentBytes: 16 * mib, Policy: "lru", Buffered: true, Database: databasetest.Open, Log: zerolog.Nop()}
	}
	opened := func(t *testing.T, o Options) *rig {
		t.Helper()
		tr, err := openRig(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tr.Close() })
		return tr
	}
	for what, tt := range map[string]struct {
		prepare func(t *testing.T, dir string) Options
		want    string // "" = it opens
	}{
		"nothing there":   {func(_ *testing.T, dir string) Options { return at(dir + "/a/b") }, ""},
		"two new folders": {func(_ *testing.T, dir string) Options { return at(dir+"/a", dir+"/b") }, ""},
		"an old tier": {func(t *testing.T, dir string) Options {
			opened(t, at(dir, dir+"/b")).Close()
			return at(dir, dir+"/b")
		}, ""},
		"the folder twice": {func(_ *testing.T, dir string) Options { return at(dir, dir+"/.") }, "are one folder"},
		"no capacity": {func(_ *testing.T, dir string) Options {
			o := at(dir)
			o.CapacityBytes = 1
			return o
		}, "capacity"},
		"below a file": {func(t *testing.T, dir string) Options {
			if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return at(dir + "/file/a")
		}, "not a directory"},
		"a file": {func(t *testing.T, dir string) Options {
			if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return at(dir + "/file")
		}, "not a directory"},
		"nothing can be made": {func(*testing.T, string) Options { return at("/proc/kvstored") }, "/proc"},
		"in use": {func(t *testing.T, dir string) Options {
			opened(t, at(dir))
			return at(dir)
		}, "in use by another process"},
		"another's path": {func(t *testing.T, dir string) Options {
			opened(t, at(dir+"/a")).Close()
			opened(t, at(dir+"/b")).Close()
			return at(dir+"/a", dir+"/b")
		}, "belongs to the set"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := tiertest.Folder(t)
				o := tt.prepare(t, dir)
				before := listing(t, dir)
				err := Check(o)
				if after := listing(t, dir); after != before {
					t.Errorf("there was\n%s\nnow there is\n%s", before, after)
				}
				tr, oerr := openRig(o)
				if oerr == nil {
					tr.Close()
				}
				if tt.want == "" {
					if err != nil || oerr != nil {
						t.Errorf("Check: %v; Open: %v", err, oerr)
					}
					return
				}
				for _, err := range []error{err, oerr} {
					if err == nil || !strings.Contains(err.Error(), tt.want) {
						t.Errorf("%v; want %q", err, tt.want)
					}
				}
			})
		})
	}
}

// listing names everything below a folder.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "\n")
}
