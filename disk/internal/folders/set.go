package folders

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/database"
)

// Claimed is a folder that this process has locked and checked.
type Claimed struct {
	Dir    string
	Folder *Folder
	Index  int
	Epoch  uint64 // of its marker
	Stale  bool   // it was not there at the last start
}

// Claim locks the folders, checks that they belong together (see claim), and
// writes down that they do. After an error the locks of the set are held, and its folders open.
func Claim(paths []string, meta string) (s *Set, dirs []Claimed, missing []string, err error) {
	s = &Set{meta: meta, makes: true}
	if dirs, missing, err = s.claim(paths); err == nil {
		err = s.join(dirs)
	}
	return s, dirs, missing, err
}

// Try returns the error that Claim would fail with, and changes nothing.
func Try(paths []string, meta string) error {
	s := &Set{meta: meta}
	defer s.Close()
	_, _, err := s.claim(paths)
	return err
}

// claim locks the folders and checks that they belong together: those of the
// segments, and that of the database. A path that has no marker though the set
// knows it is missing (a disk that is not mounted looks like that) and left
// out; nothing is written there. A path of another set is an error, and so is a
// database that is missing where there are paths of its set. A marker that is
// garbled, or gone from beside segments or a database, is damage: its content is
// taken from the others and from the list of members.
func (s *Set) claim(paths []string) (dirs []Claimed, missing []string, err error) {
	if err := distinct(paths); err != nil {
		return nil, nil, err
	}
	if err := s.openMeta(); err != nil {
		return nil, nil, err
	}
	var fresh []Claimed
	for _, dir := range paths {
		c, state, err := s.openPath(dir)
		switch {
		case err != nil:
			return nil, nil, err
		case state == pathMissing:
			missing = append(missing, dir)
		case state == pathNew:
			fresh = append(fresh, c)
		case slices.ContainsFunc(dirs, func(o Claimed) bool { return o.Index == c.Index }):
			return nil, nil, fmt.Errorf("disk: two paths are number %d of the set %s, one of them %s: it is a copy of the other; take one out of the configuration", c.Index, s.ID, dir)
		default:
			dirs = append(dirs, c)
		}
	}
	for _, c := range fresh { // the others have theirs
		if c.Index, err = s.newIndex(dirs); err != nil {
			return nil, nil, err
		}
		dirs = append(dirs, c)
	}
	if len(dirs) == 0 {
		return nil, nil, fmt.Errorf("disk: none of the paths %q is there; %w", paths, ErrAbsent)
	}
	slices.SortFunc(dirs, func(a, b Claimed) int { return a.Index - b.Index })
	return dirs, missing, nil
}

// distinct fails when a folder is named twice.
func distinct(paths []string) error {
	for i, a := range paths {
		for _, b := range paths[:i] {
			if filepath.Clean(a) == filepath.Clean(b) || SameDir(a, b) {
				return fmt.Errorf("disk: the paths %s and %s are one folder; give each once", b, a)
			}
		}
	}
	return nil
}

// Set has the id, the secret, the epoch, the members and the locks of the
// folders that belong together.
type Set struct {
	meta    string
	makes   bool    // folders and locks that are not there
	Meta    *Folder // nil = it is not there, and s makes none
	ID      string  // "" = there is none yet
	Secret  []byte  // nil = there is none yet
	Epoch   uint64  // before join that of an earlier start
	index   int     // of meta, where it is a path too
	members []member
	Folders []*Folder
	Locks   []*os.File
	Damaged []string // files that were garbled or gone
}

// lock opens dir, and takes the lock of it for this process; both are made where s may, and
// nil where they are not there yet, but could be. The lock ends with the set, also when the
// process is killed.
func (s *Set) lock(dir string) (*Folder, error) {
	f, err := s.openAndLock(dir)
	if errors.Is(err, fs.ErrNotExist) && !s.makes {
		err = canMakeIn(dir)
	}
	if err != nil {
		err = fmt.Errorf("disk: %w", err)
	}
	return f, err
}

func (s *Set) openAndLock(dir string) (*Folder, error) {
	flags := os.O_RDWR
	if s.makes {
		flags |= os.O_CREATE
		if err := makeDir(dir); err != nil {
			return nil, fmt.Errorf("make %s: %w", dir, err)
		}
	}
	f, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	if f != nil {
		s.Folders = append(s.Folders, f)
	}
	lock, err := f.Open(LockName, flags)
	if err != nil {
		return f, err
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == nil:
		s.Locks = append(s.Locks, lock)
		return f, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = fmt.Errorf("%s is in use by another process (lock %s: %w); stop it or choose another path", dir, lock.Name(), ErrInUse)
	default:
		err = fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	_ = lock.Close()
	return f, err
}

// ErrInUse says that another process has a folder.
var ErrInUse = errors.New("it is held")

// Close ends the locks.
func (s *Set) Close() {
	for _, lock := range s.Locks {
		_ = lock.Close()
	}
	for _, f := range s.Folders {
		_ = f.Close()
	}
}

func (s *Set) openMeta() (err error) {
	if s.Meta, err = s.lock(s.meta); err != nil {
		return err
	}
	if err := s.readMembers(); err != nil {
		return err
	}
	m, damaged, err := readMarker(s.Meta, s.meta)
	s.Damaged = append(s.Damaged, damaged...)
	db, noDB := os.Stat(filepath.Join(s.meta, DatabaseName))
	switch {
	case errors.Is(err, fs.ErrNotExist) && noDB == nil && db.IsDir():
		s.Damaged = append(s.Damaged, filepath.Join(s.meta, FormatName))
		fallthrough
	case errors.Is(err, ErrGarbled):
		s.ID = m.Set // "" but where the marker contradicts its copy
		s.index, _ = s.indexOf(s.meta)
		s.merge(m)
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case m.Index > 0 && errors.Is(noDB, fs.ErrNotExist):
		return fmt.Errorf("disk: the database of the set %s is not in %s, which is path %d of it; name the folder of the database first, or as disk.meta", m.Set, s.meta, m.Index)
	}
	s.ID, s.index = m.Set, m.Index
	s.merge(m)
	return nil
}

// merge takes the secret of a path's marker if no other had one, and its epoch if
// that is the highest.
func (s *Set) merge(m Marker) {
	if s.Secret == nil {
		s.Secret = m.Secret
	}
	s.Epoch = max(s.Epoch, m.Epoch)
}

// indexOf is the index of dir by the list of members.
func (s *Set) indexOf(dir string) (index int, listed bool) {
	for _, m := range s.members {
		if SameDir(m.dir, dir) {
			return m.index, true
		}
	}
	return 0, false
}

// What a configured path is.
type pathState uint8

const (
	pathOurs pathState = iota
	pathNew
	pathMissing
)

// openPath claims one folder.
func (s *Set) openPath(dir string) (c Claimed, state pathState, err error) {
	c.Dir = dir
	if SameDir(dir, s.meta) {
		c.Index, c.Folder = s.index, s.Meta
		return c, pathOurs, nil
	}
	m, damaged, err := ReadMarker(dir)
	s.Damaged = append(s.Damaged, damaged...)
	segments, _ := filepath.Glob(filepath.Join(dir, SegmentPrefix+"*"))
	isMember := slices.ContainsFunc(s.members, func(m member) bool { return m.dir == dir })
	unmarked := errors.Is(err, fs.ErrNotExist)
	gone := unmarked || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS) // or its device does not work
	switch {
	case isMember && gone && len(segments) == 0:
		return c, pathMissing, nil
	case unmarked && len(segments) == 0:
		c.Folder, err = s.lock(dir)
		return c, pathNew, err
	case unmarked:
		s.Damaged = append(s.Damaged, filepath.Join(dir, FormatName))
		return s.openGarbled(c, m)
	case errors.Is(err, ErrGarbled):
		return s.openGarbled(c, m)
	case err != nil:
		return c, 0, err
	}
	if err := s.belongs(m, dir); err != nil {
		return c, 0, err
	}
	c.Index, c.Epoch = m.Index, m.Epoch
	c.Folder, err = s.lock(dir)
	return c, pathOurs, err
}

// openGarbled claims a folder whose marker m is damage, and may have some fields all the
// same. The list of members tells its index.
func (s *Set) openGarbled(c Claimed, m Marker) (_ Claimed, state pathState, err error) {
	if m.Set == s.ID {
		s.merge(m)
	}
	state = pathOurs
	index, listed := s.indexOf(c.Dir)
	if c.Index = index; !listed {
		state = pathNew
	}
	c.Folder, err = s.lock(c.Dir)
	return c, state, err
}

// belongs is an error for the marker of a folder that is another set's. It learns
// from one of this set.
func (s *Set) belongs(m Marker, dir string) error {
	switch {
	case s.ID == "" && len(s.Damaged) > 0:
		s.ID = m.Set // of the database too, whose marker does not say so any more
	case s.ID == "":
		return fmt.Errorf("disk: %s belongs to the set %s, whose database is not in %s: %w If it is gone for good, empty %s", dir, m.Set, s.meta, ErrAbsent, dir)
	case m.Set != s.ID:
		return fmt.Errorf("disk: %s belongs to the set %s, not to %s: it is another tier's; choose another path, or empty it", dir, m.Set, s.ID)
	}
	s.merge(m)
	return nil
}

// newIndex is one that no path of the set ever had. 0 is the first one's,
// which a set from before there were several does not list.
func (s *Set) newIndex(dirs []Claimed) (int, error) {
	next := 0
	if s.ID != "" {
		next = 1
	}
	for _, m := range s.members {
		next = max(next, m.index+1)
	}
	for _, c := range dirs {
		next = max(next, c.Index+1)
	}
	if next >= MaxPaths {
		return 0, fmt.Errorf("disk: the set %s has had %d paths, the most there can be; empty its folders to start over", s.ID, next)
	}
	return next, nil
}

// join begins an epoch, writes the markers, and then the members:
// a path with a marker that is no member yet is taken for one.
func (s *Set) join(dirs []Claimed) error {
	for _, path := range s.Damaged {
		if err := s.setAside(path); err != nil {
			return err
		}
	}
	if s.ID == "" {
		s.ID = hex.EncodeToString(random(16))
	}
	if s.Secret == nil {
		s.Secret = random(database.SecretBytes)
	}
	for i, c := range dirs {
		dirs[i].Stale = c.Epoch < s.Epoch && !SameDir(c.Dir, s.meta)
	}
	minutes := time.Since(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)) / time.Minute
	s.Epoch = max(s.Epoch+1, uint64(max(minutes, 1)))
	if err := writeMarker(s.Meta, Marker{s.ID, s.index, s.Secret, s.Epoch}); err != nil {
		return err
	}
	for _, c := range dirs {
		if SameDir(c.Dir, s.meta) {
			continue
		}
		err := writeMarker(c.Folder, Marker{s.ID, c.Index, s.Secret, s.Epoch})
		if err != nil && (c.Epoch == 0 || !IsFailure(err)) { // else its marker is a start behind
			return err
		}
	}
	for _, c := range dirs {
		s.members = slices.DeleteFunc(s.members, func(m member) bool { return m.index == c.Index })
		s.members = append(s.members, member{c.Index, c.Dir})
	}
	slices.SortFunc(s.members, func(a, b member) int { return a.index - b.index })
	return s.writeMembers()
}

// A start is an epoch, and numbers its writes from there on upward (EpochShift):
// all writes of an earlier start, to the database or to a segment, have lower
// numbers, also where the database has been lost since. Where no
// Marker knows of the last epoch any more the clock does: it counts minutes,
// and no daemon starts once a minute for years.
const (
	epochBits  = 24
	EpochShift = 64 - epochBits
)

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

// member is a line of the file MembersName: a path of the set.
type member struct {
	index int
	dir   string
}

// readMembers reads the list, if there is one. A garbled one is damage, and
// is made anew of the markers.
func (s *Set) readMembers() error {
	text, err := s.Meta.Read(MembersName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	garbled := len(text) == 0
	for line := range strings.Lines(string(text)) {
		number, quoted, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		index, err := strconv.Atoi(number)
		dir, err2 := strconv.Unquote(quoted)
		garbled = garbled || err != nil || err2 != nil || index < 0 || index >= MaxPaths
		s.members = append(s.members, member{index, dir})
	}
	if garbled {
		s.members, s.Damaged = nil, append(s.Damaged, filepath.Join(s.meta, MembersName))
	}
	return nil
}

func (s *Set) writeMembers() error {
	var text []byte
	for _, m := range s.members {
		text = fmt.Appendf(text, "%d %q\n", m.index, m.dir)
	}
	if old, err := s.Meta.Read(MembersName); err == nil && string(old) == string(text) {
		return nil
	}
	return s.Meta.Replace(MembersName, text)
}

// What lies in the folders of a set.
const (
	LockName   = "kvstored.lock"
	FormatName = "kvstored.format"
	FormatCopy = "kvstored.format.copy" // the same once more: with it goes the secret

	// MembersName is the file beside the database that tells which paths belong
	// to the set: a line each, with its index and where it was last.
	MembersName = "kvstored.paths"

	DatabaseName  = "badger" // the folder of the database
	SegmentPrefix = "seg-"   // of the names of segments
)

// MaxPaths is how many paths a set may ever have had. The index of a path lies
// in one byte of a segment's number.
const MaxPaths = 256

// ErrAbsent says that what should be in a folder is not.
var ErrAbsent = errors.New("is its disk mounted?")
