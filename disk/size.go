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
	err = eachFileSystem(paths, func(st *unix.Statfs_t) { total += int64(st.Blocks) * int64(st.Bsize) })
	return total, err
}

// FreeBytes is what is free on that of the file systems which has most.
func FreeBytes(paths []string) (most int64, err error) {
	err = eachFileSystem(paths, func(st *unix.Statfs_t) { most = max(most, int64(st.Bavail)*int64(st.Bsize)) })
	return most, err
}

// eachFileSystem tells of the file systems of paths, of each once.
func eachFileSystem(paths []string, tell func(*unix.Statfs_t)) error {
	var seen []string
	for _, path := range paths {
		dir, err := existing(path)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(seen, func(other string) bool { return sameFileSystem(dir, other) }) {
			continue
		}
		seen = append(seen, dir)
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			return &os.PathError{Op: "statfs", Path: dir, Err: err}
		}
		tell(&st)
	}
	return nil
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
