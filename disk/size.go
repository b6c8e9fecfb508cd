//go:build unix

package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// TotalBytes is the size of the file systems that paths lie on, or will once
// they are made, each counted once.
func TotalBytes(paths []string) (total int64, err error) {
	var seen []string
	for _, path := range paths {
		dir, err := existing(path)
		if err != nil {
			return 0, err
		}
		if slices.ContainsFunc(seen, func(other string) bool { return sameFileSystem(dir, other) }) {
			continue
		}
		seen = append(seen, dir)
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
		}
		total += int64(st.Blocks) * int64(st.Bsize)
	}
	return total, nil
}

// existing is path, or the folder nearest above it that there is.
func existing(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for {
		if _, err = os.Stat(path); !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return path, err
		}
		path = filepath.Dir(path)
	}
}
