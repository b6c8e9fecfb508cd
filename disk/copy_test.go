package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// copyDir copies a folder as it is at one moment: again, where a file came, grew or went
// meanwhile, as one does while a database makes a table of its log.
func copyDir(t testing.TB, from, to string) {
	t.Helper()
	copyUntil(t, from, to, func(before string) bool { return sizesIn(t, from) == before })
}

// copyTorn copies a folder to which others write all the time. A copy during which a
// file went is made again.
func copyTorn(t testing.TB, from, to string) {
	t.Helper()
	copyUntil(t, from, to, func(string) bool { return true })
}

// copyUntil copies a folder until no file went meanwhile and good, which gets the sizes
// before, is true.
func copyUntil(t testing.TB, from, to string, good func(before string) bool) {
	t.Helper()
	for tries := 1; ; tries++ {
		before := sizesIn(t, from)
		err := os.CopyFS(to, os.DirFS(from))
		if err == nil && good(before) {
			return
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) || tries == 1000 {
			t.Fatalf("%s cannot be copied as a whole: %v", from, err)
		}
		emptyDir(t, to)
	}
}

// emptyDir removes all that is in a folder, where there is one.
func emptyDir(t testing.TB, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	for _, e := range left {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// sizesIn names everything below a folder, with the sizes; less what goes meanwhile.
func sizesIn(t testing.TB, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				fmt.Fprintln(&all, path, info.Size())
			}
		}
		if errors.Is(err, fs.ErrNotExist) && path != dir {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
