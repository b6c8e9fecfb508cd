package folders

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// AllocatedBytes is how much a file occupies on its file system.
func AllocatedBytes(info os.FileInfo) int64 {
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

// OccupiedBelow is how much a folder and all in it occupy, as far as that can be told, and
// the first error; 0 without it.
func OccupiedBelow(dir string) (total int64, failed error) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		switch {
		case errors.Is(err, fs.ErrNotExist): // files come and go
		case err != nil:
			failed = cmp.Or(failed, err)
		default:
			total += AllocatedBytes(info)
		}
		return nil
	})
	return total, failed
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

// syncDir makes the names in a folder survive a power failure.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written through it
	return f.Sync()
}

// makeDir makes dir, and the folders above it, so that a power failure does not
// take it back.
func makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(parent)
}

// SameDir reports whether two paths lead to one file or folder that is there.
func SameDir(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
