package filesystem

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// FreeBytes is the free space, in bytes, of the file system of paths that has
// most of it.
func FreeBytes(paths []string) (most int64, err error) {
	for _, path := range paths {
		dir, err := NearestExisting(path)
		if err != nil {
			return 0, err
		}
		free, err := AvailableBytes(dir)
		if err != nil {
			return 0, err
		}
		most = max(most, free)
	}
	return most, nil
}

// NearestExisting is path, or the folder nearest above it that there is.
func NearestExisting(path string) (string, error) {
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

// IsFull reports whether an error says that there is no room for more: of the
// file system, of a quota, or of the size of a file.
func IsFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG)
}

// IsFailure reports whether an error is one of the device or the machine, and
// not that there is no room.
func IsFailure(err error) bool {
	var no unix.Errno
	return errors.As(err, &no) && !IsFull(err)
}

// SameDevice is also true when that cannot be told.
func SameDevice(a, b string) bool {
	var x, y unix.Stat_t
	return unix.Stat(a, &x) != nil || unix.Stat(b, &y) != nil || x.Dev == y.Dev
}

// AvailableBytes is how much an unprivileged process may still allocate in dir.
func AvailableBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
