package disk

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

	"github.com/kvstored/kvstored/internal/record"
)

// membersName is the file beside the database that tells which paths belong
// to the set: a line each, with its index and where it was last.
const membersName = "kvstored.paths"

// claimed is a folder that this process has locked and checked.
type claimed struct {
	dir   string
	index int
	epoch uint64 // of its marker
	stale bool   // it was not there at the last start
}

// member is a line of that file.
type member struct {
	index int
	dir   string
}

// claimSet locks the folders, checks that they belong together (see claim), and
// writes down that they do. After an error the locks of the set are held.
func claimSet(paths []string, meta string) (s *set, dirs []claimed, missing []string, err error) {
	s = &set{meta: meta, take: lockDir}
	if dirs, missing, err = s.claim(paths); err == nil {
		err = s.join(dirs)
	}
	return s, dirs, missing, err
}

// trySet tells what claimSet would fail over, and changes nothing.
func trySet(paths []string, meta string) error {
	s := &set{meta: meta, take: tryDir}
	_, _, err := s.claim(paths)
	for _, lock := range s.locks {
		_ = lock.Close()
	}
	return err
}

// claim locks the folders and checks that they belong together: those of the
// segments, and that of the database. A path that has no marker though the set
// knows it is missing (a disk that is not mounted looks like that) and left
// out; nothing is written there. A path of another set is an error, and so is a
// database that is missing where there are paths of its set. A marker that is
// garbled, or gone from beside what it marks, is damage: what it said is taken
// from the others and from the list of members.
func (s *set) claim(paths []string) (dirs []claimed, missing []string, err error) {
	if err := distinct(paths); err != nil {
		return nil, nil, err
	}
	if err := s.openMeta(); err != nil {
		return nil, nil, err
	}
	var fresh []claimed
	for _, dir := range paths {
		c, state, err := s.openPath(dir)
		switch {
		case err != nil:
			return nil, nil, err
		case state == pathMissing:
			missing = append(missing, dir)
		case state == pathNew:
			fresh = append(fresh, c)
		case slices.ContainsFunc(dirs, func(o claimed) bool { return o.index == c.index }):
			return nil, nil, fmt.Errorf("disk: two paths are number %d of the set %s, one of them %s: it is a copy of the other; take one out of the configuration", c.index, s.id, dir)
		default:
			dirs = append(dirs, c)
		}
	}
	for _, c := range fresh { // the others have theirs
		if c.index, err = s.newIndex(dirs); err != nil {
			return nil, nil, err
		}
		dirs = append(dirs, c)
	}
	if len(dirs) == 0 {
		return nil, nil, fmt.Errorf("disk: none of the paths %q is there; %w", paths, errAbsent)
	}
	slices.SortFunc(dirs, func(a, b claimed) int { return a.index - b.index })
	return dirs, missing, nil
}

// distinct fails when a folder is named twice.
func distinct(paths []string) error {
	for i, a := range paths {
		for _, b := range paths[:i] {
			if filepath.Clean(a) == filepath.Clean(b) || sameDir(a, b) {
				return fmt.Errorf("disk: the paths %s and %s are one folder; give each once", b, a)
			}
		}
	}
	return nil
}

// set is what claim knows so far.
type set struct {
	meta    string
	take    func(dir string) (lock *os.File, err error) // the lock may be nil
	id      string                                      // "" = there is none yet
	secret  []byte                                      // nil = there is none yet
	epoch   uint64                                      // before join that of an earlier start
	index   int                                         // of meta, where it is a path too
	members []member
	locks   []*os.File
	damaged []string // files that did not hold what they should
}

func (s *set) lock(dir string) error {
	lock, err := s.take(dir)
	if lock != nil {
		s.locks = append(s.locks, lock)
	}
	return err
}

func (s *set) openMeta() error {
	if err := s.lock(s.meta); err != nil {
		return err
	}
	if err := s.readMembers(); err != nil {
		return err
	}
	m, damaged, err := readMarker(s.meta)
	s.damaged = append(s.damaged, damaged...)
	db, noDB := os.Stat(filepath.Join(s.meta, storeName))
	switch {
	case errors.Is(err, fs.ErrNotExist) && noDB == nil && db.IsDir():
		s.damaged = append(s.damaged, filepath.Join(s.meta, formatName))
		fallthrough
	case errors.Is(err, errGarbled):
		s.id = m.set // "" but where the marker contradicts its copy
		s.index, _ = s.indexOf(s.meta)
		s.learn(m)
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case m.index > 0 && errors.Is(noDB, fs.ErrNotExist):
		return fmt.Errorf("disk: the database of the set %s is not in %s, which is path %d of it; name the folder of the database first, or as disk.meta", m.set, s.meta, m.index)
	}
	s.id, s.index = m.set, m.index
	s.learn(m)
	return nil
}

// learn takes over what the marker of a path knows and no other did.
func (s *set) learn(m marker) {
	if s.secret == nil {
		s.secret = m.secret
	}
	s.epoch = max(s.epoch, m.epoch)
}

// indexOf is the index of dir by the list of members.
func (s *set) indexOf(dir string) (index int, listed bool) {
	for _, m := range s.members {
		if sameDir(m.dir, dir) {
			return m.index, true
		}
	}
	return 0, false
}

// readMembers reads the list, if there is one. A garbled one is damage, and
// is made anew of the markers.
func (s *set) readMembers() (err error) {
	s.members, err = readMembers(s.meta)
	if errors.Is(err, errGarbled) {
		s.damaged = append(s.damaged, filepath.Join(s.meta, membersName))
		return nil
	}
	return err
}

// What a configured path is.
type pathState uint8

const (
	pathOurs pathState = iota
	pathNew
	pathMissing
)

// openPath claims one folder.
func (s *set) openPath(dir string) (c claimed, state pathState, err error) {
	c.dir = dir
	if sameDir(dir, s.meta) {
		c.index = s.index
		return c, pathOurs, nil
	}
	m, damaged, err := readMarker(dir)
	s.damaged = append(s.damaged, damaged...)
	unmarked := errors.Is(err, fs.ErrNotExist)
	segments, _ := filepath.Glob(filepath.Join(dir, segmentPrefix+"*"))
	unmarked = unmarked && len(segments) == 0
	if slices.ContainsFunc(s.members, func(m member) bool { return m.dir == dir }) && isMissing(err) && len(segments) == 0 {
		return c, pathMissing, nil
	}
	if errors.Is(err, fs.ErrNotExist) && !unmarked {
		s.damaged = append(s.damaged, filepath.Join(dir, formatName))
		err = errGarbled
	}
	if errors.Is(err, errGarbled) {
		if m.set == s.id {
			s.learn(m)
		}
		index, listed := s.indexOf(dir)
		if c.index = index; !listed {
			state = pathNew
		}
		return c, state, s.lock(dir)
	}
	switch {
	case err != nil && !unmarked:
		return c, 0, err
	case unmarked:
		state = pathNew
	case s.id == "" && len(s.damaged) > 0:
		s.id = m.set // of the database too, whose marker does not say so any more
	case s.id == "":
		return c, 0, fmt.Errorf("disk: %s belongs to the set %s, whose database is not in %s: %w If it is gone for good, empty %s", dir, m.set, s.meta, errAbsent, dir)
	case m.set != s.id:
		return c, 0, fmt.Errorf("disk: %s belongs to the set %s, not to %s: it is another tier's; choose another path, or empty it", dir, m.set, s.id)
	}
	c.index, c.epoch = m.index, m.epoch
	if state == pathOurs {
		s.learn(m)
	}
	return c, state, s.lock(dir)
}

// isMissing tells a folder that is not there, or whose device does not work,
// from one that may not be used.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS)
}

// newIndex is one that no path of the set ever had. 0 is the first one's,
// which a set from before there were several does not list.
func (s *set) newIndex(dirs []claimed) (int, error) {
	next := 0
	if s.id != "" {
		next = 1
	}
	for _, m := range s.members {
		next = max(next, m.index+1)
	}
	for _, c := range dirs {
		next = max(next, c.index+1)
	}
	if next >= maxPaths {
		return 0, fmt.Errorf("disk: the set %s has had %d paths, the most there can be; empty its folders to start over", s.id, next)
	}
	return next, nil
}

// join begins an epoch, writes the markers, and then the members:
// a path with a marker that is no member yet is taken for one.
func (s *set) join(dirs []claimed) error {
	for _, path := range s.damaged {
		if err := setAside(path); err != nil {
			return err
		}
	}
	if s.id == "" {
		s.id = hex.EncodeToString(random(16))
	}
	if s.secret == nil {
		s.secret = random(record.SecretBytes)
	}
	for i, c := range dirs {
		dirs[i].stale = c.epoch < s.epoch && !sameDir(c.dir, s.meta)
	}
	s.epoch = max(s.epoch+1, epochNow())
	if err := writeMarker(s.meta, marker{s.id, s.index, s.secret, s.epoch}); err != nil {
		return err
	}
	for _, c := range dirs {
		if sameDir(c.dir, s.meta) {
			continue
		}
		err := writeMarker(c.dir, marker{s.id, c.index, s.secret, s.epoch})
		if err != nil && (c.epoch == 0 || !isTrouble(err)) { // else its marker is a start behind
			return err
		}
	}
	for _, c := range dirs {
		s.members = slices.DeleteFunc(s.members, func(m member) bool { return m.index == c.index })
		s.members = append(s.members, member{c.index, c.dir})
	}
	slices.SortFunc(s.members, func(a, b member) int { return a.index - b.index })
	return writeMembers(s.meta, s.members)
}

func readMembers(meta string) (list []member, err error) {
	path := filepath.Join(meta, membersName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	if len(text) == 0 {
		return nil, fmt.Errorf("disk: %s: empty: %w", path, errGarbled)
	}
	for line := range strings.Lines(string(text)) {
		number, quoted, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		index, err := strconv.Atoi(number)
		dir, err2 := strconv.Unquote(quoted)
		if err := errors.Join(err, err2); err != nil || index < 0 || index >= maxPaths {
			return nil, fmt.Errorf("disk: %s: the line %q: %w", path, line, errGarbled)
		}
		list = append(list, member{index, dir})
	}
	return list, nil
}

func writeMembers(meta string, list []member) error {
	var text []byte
	for _, m := range list {
		text = fmt.Appendf(text, "%d %q\n", m.index, m.dir)
	}
	path := filepath.Join(meta, membersName)
	if old, err := os.ReadFile(path); err == nil && string(old) == string(text) {
		return nil
	}
	return writeFile(path, text)
}

// A start is an epoch, and numbers what it writes from there on upward
// (epochShift): whatever an earlier one wrote, to the database or to a segment,
// has a lower number, also where the database has been lost since. Where no
// marker knows of the last epoch any more the clock does: it counts minutes,
// and no daemon starts once a minute for years.
const (
	epochBits  = 24
	epochShift = 64 - epochBits
)

func epochNow() uint64 {
	since := time.Since(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	return uint64(max(since/time.Minute, 1))
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}
