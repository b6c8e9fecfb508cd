package folders

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
	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/database"
)

// formatVersion is the layout of a disk tier's directory. It changes only
// when an older program would misread it. 1 was in no release.
const formatVersion = 2

// isOwn names the files of a tier, which are to be its own.
func isOwn(name string) bool {
	return strings.HasPrefix(name, SegmentPrefix) || strings.HasPrefix(name, "learned.") || strings.HasPrefix(name, "kvstored.") && !strings.HasSuffix(name, damagedSuffix)
}

// openFolder opens a folder of the set's; nil where there is none.
func openFolder(dir string) (*Folder, error) {
	f, err := OpenFolder(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	err = f.Check(isOwn)
	if err == nil {
		err = checkDatabase(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// checkDatabase is an error where a file of the database is not the tier's own.
func checkDatabase(f *Folder) error {
	db, err := f.Below(DatabaseName)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil // it is made anew
	case err != nil:
		return err
	}
	defer db.Close() //nolint:errcheck // nothing was written
	return db.Check(func(string) bool { return true })
}

// canMakeIn is an error where dir, or the folder it is to lie in, does not let this
// process make anything.
func canMakeIn(dir string) error {
	there, err := NearestExisting(dir)
	if err == nil {
		if err = unix.Access(there+"/", unix.W_OK|unix.X_OK); err != nil { // a slash: a file is no place either
			err = &os.PathError{Op: "write to", Path: there, Err: err}
		}
		err = errors.Join(checkWay(dir), err)
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	return nil
}

// Marker tells the layout's version, which set of directories one belongs to,
// and which of its paths it is.
type Marker struct {
	Set    string
	Index  int
	Secret []byte // of the headers in the set's segments
	Epoch  uint64 // of the last start; only the one beside the database is up to date
}

// ErrGarbled says that a file of the set does not hold the text of this program:
// damage, which costs that file and nothing else.
var ErrGarbled = errors.New("not what was written")

// markerFiles are the marker of a folder and its copy.
var markerFiles = []string{FormatName, FormatCopy}

// ReadMarker is readMarker of a folder that is not open.
func ReadMarker(dir string) (m Marker, damaged []string, err error) {
	f, err := openFolder(dir)
	if err != nil {
		return m, nil, fmt.Errorf("disk: %w", err)
	}
	if f != nil {
		defer f.Close() //nolint:errcheck // nothing was written
	}
	return readMarker(f, dir)
}

// readMarker returns the younger of the marker and its copy, and which of them
// are damaged. It fails with ErrGarbled where one is, and the other is no
// better, and where each says that dir is another path of the set: then m still
// holds the set, the secret and the epoch. A marker of a newer program is an
// error that must not be passed over.
func readMarker(f *Folder, dir string) (m Marker, damaged []string, err error) {
	absent, gone := fs.ErrNotExist, ""
	found, contradict := false, false
	for _, name := range markerFiles {
		path := filepath.Join(dir, name)
		text, err := f.Read(name)
		if errors.Is(err, fs.ErrNotExist) {
			absent, gone = err, path
			continue
		}
		if err != nil {
			return m, nil, fmt.Errorf("disk: %w", err)
		}
		one, err := parseMarker(dir, text)
		switch {
		case errors.Is(err, ErrGarbled):
			damaged = append(damaged, path)
		case err != nil:
			return m, nil, err
		default:
			contradict = found && one.Index != m.Index
			if !found || one.Epoch > m.Epoch {
				m, found = one, true
			}
		}
	}
	switch {
	case contradict:
		return m, []string{filepath.Join(dir, FormatName), filepath.Join(dir, FormatCopy)}, fmt.Errorf("disk: %s and its copy say two things: %w", FormatName, ErrGarbled)
	case found:
		if gone != "" {
			damaged = append(damaged, gone)
		}
		return m, damaged, nil
	case len(damaged) > 0:
		return m, damaged, fmt.Errorf("disk: %s: %w", damaged[0], ErrGarbled)
	}
	return m, nil, fmt.Errorf("disk: %w", absent)
}

// parseMarker reads lines of a word and a value. The last one is the checksum of
// the others, so that damage does not look like a newer one.
func parseMarker(dir string, text []byte) (m Marker, err error) {
	words := strings.Fields(string(text))
	if len(words) < 4 || len(words)%2 > 0 || words[0] != "kvstored-disk" || words[2] != "set" {
		return m, ErrGarbled
	}
	switch version := versionOf(words, text); {
	case version == 0:
		return m, ErrGarbled
	case version < formatVersion:
		return m, fmt.Errorf("disk: %s was written in format %d, which was in no release; empty it or choose another path", dir, version)
	case version > formatVersion:
		return m, fmt.Errorf("disk: %s was written in format %d, this program reads up to %d; run a newer one or choose another path", dir, version, formatVersion)
	}
	m.Set = words[3]
	for i := 4; i < len(words) && err == nil; i += 2 {
		err = m.take(words[i], words[i+1])
	}
	if err != nil || m.Index < 0 || m.Index >= MaxPaths || len(m.Secret) != database.SecretBytes {
		return m, ErrGarbled
	}
	return m, nil
}

// versionOf is the format of a marker; 0 where it is damaged.
func versionOf(words []string, text []byte) int {
	version, err := strconv.Atoi(words[1])
	if err != nil || version < 1 || version > 1 && !hasSum(text) || version == 1 && len(words) > 6 {
		return 0
	}
	return version
}

// take takes over one line of a marker.
func (m *Marker) take(word, value string) (err error) {
	switch word {
	case "path":
		m.Index, err = strconv.Atoi(value)
	case "secret":
		m.Secret, err = hex.DecodeString(value)
	case "epoch":
		m.Epoch, err = strconv.ParseUint(value, 10, epochBits)
	case "sum": // hasSum has compared it
	default:
		err = ErrGarbled
	}
	return err
}

// hasSum reports whether text ends in a line "sum" with the XXH3-64 of the text
// before it.
func hasSum(text []byte) bool {
	at := bytes.LastIndex(text, []byte("sum "))
	return at >= 0 && string(text[at:]) == SumLine(text[:at])
}

// SumLine is the last line of a marker whose other lines are text.
func SumLine(text []byte) string { return fmt.Sprintf("sum %016x\n", xxh3.Hash(text)) }

// damagedSuffix is that of a file that was damaged, for a person to look at.
const damagedSuffix = ".damaged"

// setAside keeps a damaged file under another name.
func (s *Set) setAside(path string) error {
	dir, name := filepath.Split(path)
	for _, f := range s.Folders {
		if f.Path("") != filepath.Clean(dir) {
			continue
		}
		if err := f.Rename(name, name+damagedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("disk: set aside: %w", err)
		}
	}
	return nil
}

// writeMarker writes the marker of a folder and its copy, each whole or not at all.
// The marker of the first path has no number, like those of the time when a
// tier had one path only.
func writeMarker(f *Folder, m Marker) error {
	text := fmt.Appendf(nil, "kvstored-disk %d\nset %s\n", formatVersion, m.Set)
	if m.Index > 0 {
		text = fmt.Appendf(text, "path %d\n", m.Index)
	}
	text = fmt.Appendf(text, "secret %x\nepoch %d\n", m.Secret, m.Epoch)
	text = append(text, SumLine(text)...)
	for _, name := range markerFiles {
		if err := f.Replace(name, text); err != nil {
			return err
		}
	}
	return nil
}
