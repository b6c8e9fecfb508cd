package disk

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// formatVersion is the layout of a disk tier's directory. It changes only
// when an older program would misread it.
const formatVersion = 1

const (
	lockName   = "kvstored.lock"
	formatName = "kvstored.format"
)

// lockDir makes dir if need be and takes it for this process. The lock ends
// with the returned file, also when the process is killed.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	return takeLock(lock, dir)
}

// tryDir is lockDir without making anything. The lock is nil where there is no
// file for it yet, but could be.
func tryDir(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
	switch {
	case err == nil:
		return takeLock(lock, dir)
	case !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("disk: %w", err)
	}
	there, err := existing(dir)
	if err == nil {
		err = canMake(there)
	}
	if err != nil {
		return nil, fmt.Errorf("disk: make %s: %w", dir, err)
	}
	return nil, nil
}

// takeLock owns the file.
func takeLock(lock *os.File, dir string) (*os.File, error) {
	err := lockFile(lock)
	if err == nil {
		return lock, nil
	}
	_ = lock.Close()
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("disk: lock %s: %w", lock.Name(), err)
	}
	return nil, fmt.Errorf("disk: %s is in use by another process (lock %s: %w); stop it or choose another path", dir, lock.Name(), err)
}

// marker tells the layout's version, which set of directories one belongs to,
// and which of its paths it is.
type marker struct {
	set   string
	index int
}

// mark writes the marker of dir unless there is one. It returns the set, a new
// one if m names none.
func mark(dir string, m marker) (set string, err error) {
	switch old, err := readMarker(dir); {
	case err == nil:
		return old.set, nil
	case !errors.Is(err, os.ErrNotExist):
		return "", err
	}
	if m.set == "" {
		var id [16]byte
		_, _ = rand.Read(id[:]) // never fails
		m.set = hex.EncodeToString(id[:])
	}
	if err := writeMarker(dir, m); err != nil {
		return "", err
	}
	return m.set, errors.Join(syncPath(dir), syncPath(filepath.Dir(dir))) // the names
}

func readMarker(dir string) (m marker, err error) {
	path := filepath.Join(dir, formatName)
	text, err := os.ReadFile(path)
	if err != nil {
		return m, fmt.Errorf("disk: %w", err)
	}
	words := strings.Fields(string(text))
	plain := len(words) == 4
	if !plain && (len(words) != 6 || words[4] != "path") || words[0] != "kvstored-disk" || words[2] != "set" {
		return m, fmt.Errorf("disk: %s is not a marker of ours; remove the directory's contents or choose another path", path)
	}
	version, err := strconv.Atoi(words[1])
	if err != nil || version < 1 {
		return m, fmt.Errorf("disk: %s: version %q is not a number; remove the directory's contents or choose another path", path, words[1])
	}
	if version > formatVersion {
		return m, fmt.Errorf("disk: %s was written in format %d, this program reads up to %d; run a newer one or choose another path", dir, version, formatVersion)
	}
	m.set = words[3]
	if !plain {
		if m.index, err = strconv.Atoi(words[5]); err != nil || m.index < 1 || m.index >= maxPaths {
			return m, fmt.Errorf("disk: %s: path %q is not a number from 1 to %d; remove the directory's contents or choose another path", path, words[5], maxPaths-1)
		}
	}
	return m, nil
}

// writeMarker appears whole or not at all. The first path has no number: that
// is what it looked like when there was only one.
func writeMarker(dir string, m marker) error {
	text := fmt.Appendf(nil, "kvstored-disk %d\nset %s\n", formatVersion, m.set)
	if m.index > 0 {
		text = fmt.Appendf(text, "path %d\n", m.index)
	}
	return writeFile(filepath.Join(dir, formatName), text)
}

func writeFile(path string, text []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	return nil
}

// attempts counts starts that did not get through: Badger may end the process
// over a damaged file, and must not do so for ever.
type attempts struct{ path string }

// begin counts this start and returns how many before it failed in a row.
func (a attempts) begin() (failed int, err error) {
	text, err := os.ReadFile(a.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("disk: %w", err)
	}
	failed, _ = strconv.Atoi(string(bytes.TrimSpace(text)))
	return failed, writeFile(a.path, strconv.AppendInt(nil, int64(failed+1), 10))
}

// set makes it so many.
func (a attempts) set(failed int) {
	if failed == 0 {
		a.succeeded()
		return
	}
	_ = writeFile(a.path, strconv.AppendInt(nil, int64(failed), 10))
}

// succeeded forgets the failures.
func (a attempts) succeeded() { _ = os.Remove(a.path) }
