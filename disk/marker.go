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
)

// formatVersion is the layout of a disk tier's directory. It changes only
// when an older program would misread it.
const formatVersion = 1

const (
	lockName   = "kvstored.lock"
	formatName = "kvstored.format"
)

// claim takes dir for this process and reads or writes its marker, which
// tells the layout's version and which set of directories it belongs to. The
// lock ends with the returned file, also when the process is killed.
func claim(dir, set string) (lock *os.File, gotSet string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, "", fmt.Errorf("disk: %w", err)
	}
	path := filepath.Join(dir, lockName)
	lock, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, "", fmt.Errorf("disk: %w", err)
	}
	if err := lockFile(lock); err != nil {
		_ = lock.Close()
		return nil, "", fmt.Errorf("disk: %s is in use by another process (lock %s: %w); stop it or choose another path", dir, path, err)
	}
	gotSet, err = readMarker(dir)
	if errors.Is(err, os.ErrNotExist) {
		if gotSet = set; gotSet == "" {
			var id [16]byte
			_, _ = rand.Read(id[:]) // never fails
			gotSet = hex.EncodeToString(id[:])
		}
		if err = writeMarker(dir, gotSet); err == nil {
			err = errors.Join(syncPath(dir), syncPath(filepath.Dir(dir))) // the names
		}
	}
	if err == nil && set != "" && set != gotSet {
		err = fmt.Errorf("disk: %s belongs to the set %s, not to %s: it is another tier's; choose another path", dir, gotSet, set)
	}
	if err != nil {
		_ = lock.Close()
		return nil, "", err
	}
	return lock, gotSet, nil
}

func readMarker(dir string) (set string, err error) {
	path := filepath.Join(dir, formatName)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("disk: %w", err)
	}
	words := strings.Fields(string(text))
	if len(words) != 4 || words[0] != "kvstored-disk" || words[2] != "set" {
		return "", fmt.Errorf("disk: %s is not a marker of ours; remove the directory's contents or choose another path", path)
	}
	version, err := strconv.Atoi(words[1])
	if err != nil || version < 1 {
		return "", fmt.Errorf("disk: %s: version %q is not a number; remove the directory's contents or choose another path", path, words[1])
	}
	if version > formatVersion {
		return "", fmt.Errorf("disk: %s was written in format %d, this program reads up to %d; run a newer one or choose another path", dir, version, formatVersion)
	}
	return words[3], nil
}

// writeMarker appears whole or not at all.
func writeMarker(dir, set string) error {
	path := filepath.Join(dir, formatName)
	return writeFile(path, fmt.Appendf(nil, "kvstored-disk %d\nset %s\n", formatVersion, set))
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

// exhaust makes the next start count as one too many. If that cannot be
// written the next start tries once more.
func (a attempts) exhaust() {
	_ = writeFile(a.path, strconv.AppendInt(nil, maxFailedStarts, 10))
}

// succeeded forgets the failures.
func (a attempts) succeeded() { _ = os.Remove(a.path) }
