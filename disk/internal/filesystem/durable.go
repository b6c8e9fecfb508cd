package filesystem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Sync makes a file, or the names in a folder, survive a power failure.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written through it
	return f.Sync()
}

// Replace replaces path with text. When it has returned a power failure
// leaves either; before, the old one or the new one, and never an empty one.
func Replace(path string, text []byte) error {
	tmp := path + ".new"
	err := writeSynced(tmp, text)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err == nil {
		err = Sync(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	return nil
}

func writeSynced(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// MakeDir makes dir, and the folders above it, so that a power failure does not
// take it back.
func MakeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := MakeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return Sync(parent)
}

// Exists reports whether there is something at a path.
func Exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// SameDir reports whether two paths lead to one file or folder that is there.
func SameDir(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
