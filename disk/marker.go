package disk

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/internal/record"
)

// formatVersion is the layout of a disk tier's directory. It changes only
// when an older program would misread it.
//
// 1 had no headers before payloads, and no secret in the marker.
const formatVersion = 2

const (
	lockName   = "kvstored.lock"
	formatName = "kvstored.format"
	formatCopy = "kvstored.format.copy" // the same once more: with it goes the secret
)

// lockDir makes dir if need be and takes it for this process. The lock ends
// with the returned file, also when the process is killed.
func lockDir(dir string) (*os.File, error) {
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	return takeLock(lock, dir)
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
	return syncPath(parent)
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

// errInUse says that another process has a folder.
var errInUse = errors.New("it is held")

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
	return nil, fmt.Errorf("disk: %s is in use by another process (lock %s: %w); stop it or choose another path", dir, lock.Name(), errInUse)
}

// marker tells the layout's version, which set of directories one belongs to,
// and which of its paths it is.
type marker struct {
	set    string
	index  int
	secret []byte // of the headers in the set's segments; nil in format 1
	epoch  uint64 // of the last start; only the one beside the database is up to date
}

// errGarbled says that a file of the set does not hold what this program wrote:
// damage, which costs that file and nothing else.
var errGarbled = errors.New("not what was written")

// markerFiles are the marker of dir and its copy.
func markerFiles(dir string) []string {
	return []string{filepath.Join(dir, formatName), filepath.Join(dir, formatCopy)}
}

// readMarker returns the younger of the marker and its copy, and which of them
// are damaged. It fails with errGarbled where one is, and the other is no
// better, and where each says that dir is another path of the set: then m still
// holds the set, the secret and the epoch. A marker of a newer program is an
// error that must not be passed over.
func readMarker(dir string) (m marker, damaged []string, err error) {
	absent, gone := fs.ErrNotExist, ""
	found, contradict := false, false
	for _, path := range markerFiles(dir) {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			absent, gone = err, path
			continue
		}
		if err != nil {
			return m, nil, fmt.Errorf("disk: %w", err)
		}
		one, err := parseMarker(dir, text)
		switch {
		case errors.Is(err, errGarbled):
			damaged = append(damaged, path)
		case err != nil:
			return m, nil, err
		default:
			contradict = found && one.index != m.index
			if !found || one.epoch > m.epoch {
				m, found = one, true
			}
		}
	}
	switch {
	case contradict:
		return m, markerFiles(dir), fmt.Errorf("disk: %s and its copy say two things: %w", formatName, errGarbled)
	case found:
		if m.secret != nil && gone != "" { // format 1 had no copy
			damaged = append(damaged, gone)
		}
		return m, damaged, nil
	case len(damaged) > 0:
		return m, damaged, fmt.Errorf("disk: %s: %w", damaged[0], errGarbled)
	}
	return m, nil, fmt.Errorf("disk: %w", absent)
}

// parseMarker reads lines of a word and a value. From format 2 on the last one
// is the checksum of the others, so that damage does not look like a newer one.
func parseMarker(dir string, text []byte) (m marker, err error) {
	words := strings.Fields(string(text))
	if len(words) < 4 || len(words)%2 > 0 || words[0] != "kvstored-disk" || words[2] != "set" {
		return m, errGarbled
	}
	version, err := strconv.Atoi(words[1])
	switch {
	case err != nil || version < 1 || version > 1 && !hasSum(text) || version == 1 && len(words) > 6:
		return m, errGarbled
	case version > formatVersion:
		return m, fmt.Errorf("disk: %s was written in format %d, this program reads up to %d; run a newer one or choose another path", dir, version, formatVersion)
	}
	m.set = words[3]
	for i := 4; i < len(words); i += 2 {
		value := words[i+1]
		var err error
		switch words[i] {
		case "path":
			m.index, err = strconv.Atoi(value)
		case "secret":
			m.secret, err = hex.DecodeString(value)
		case "epoch":
			m.epoch, err = strconv.ParseUint(value, 10, epochBits)
		case "sum":
		default:
			err = errGarbled
		}
		if err != nil {
			return m, errGarbled
		}
	}
	if m.index < 0 || m.index >= maxPaths || version > 1 && len(m.secret) != record.SecretBytes {
		return m, errGarbled
	}
	return m, nil
}

// hasSum reports whether text ends in a line "sum" with the XXH3-64 of what is
// before it.
func hasSum(text []byte) bool {
	at := bytes.LastIndex(text, []byte("sum "))
	return at >= 0 && string(text[at:]) == sumLine(text[:at])
}

func sumLine(text []byte) string { return fmt.Sprintf("sum %016x\n", xxh3.Hash(text)) }

// setAside keeps a damaged file under another name, for a person to look at.
func setAside(path string) error {
	if err := os.Rename(path, path+".damaged"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("disk: set aside: %w", err)
	}
	return nil
}

// writeMarker writes the marker of dir and its copy, each whole or not at all.
// The first path has no number: that is what it looked like when there was
// only one.
func writeMarker(dir string, m marker) error {
	text := fmt.Appendf(nil, "kvstored-disk %d\nset %s\n", formatVersion, m.set)
	if m.index > 0 {
		text = fmt.Appendf(text, "path %d\n", m.index)
	}
	text = fmt.Appendf(text, "secret %x\nepoch %d\n", m.secret, m.epoch)
	text = append(text, sumLine(text)...)
	for _, path := range markerFiles(dir) {
		if err := writeFile(path, text); err != nil {
			return err
		}
	}
	return nil
}

// writeFile replaces path with text. When it has returned a power failure
// leaves either; before, the old one or the new one, and never an empty one.
func writeFile(path string, text []byte) error {
	tmp := path + ".new"
	err := writeSynced(tmp, text)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err == nil {
		err = syncPath(filepath.Dir(path))
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

// attempts counts starts that did not get through: Badger may end the process
// over a damaged file, and must not do so for ever.
type attempts struct{ path string }

// begin counts this start and returns how many before it failed in a row.
func (a attempts) begin() (failed int, err error) {
	text, err := os.ReadFile(a.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("disk: %w", err)
	}
	if strings.Trim(string(text), "x") == "" { // else garbled: that counts for nothing
		failed = len(text)
	}
	return failed, a.write(failed + 1)
}

// set makes it so many.
func (a attempts) set(failed int) {
	if failed == 0 {
		a.succeeded()
		return
	}
	_ = a.write(failed)
}

// write keeps the number as so many letters, so that no flipped bit raises it.
func (a attempts) write(failed int) error {
	return writeFile(a.path, bytes.Repeat([]byte("x"), failed))
}

// succeeded forgets the failures.
func (a attempts) succeeded() { _ = os.Remove(a.path) }
