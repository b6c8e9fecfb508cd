package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// membersName is the file beside the database that tells which paths belong
// to the set: a line each, with its index and where it was last.
const membersName = "kvstored.paths"

// claimed is a folder that this process has locked and checked.
type claimed struct {
	dir   string
	index int
}

// member is a line of that file.
type member struct {
	index int
	dir   string
}

// claimSet locks the folders, checks that they belong together (see claim), and
// writes down that they do. After an error the locks it returns are held.
func claimSet(paths []string, meta string) (dirs []claimed, missing []string, locks []*os.File, err error) {
	s := &set{meta: meta, take: lockDir}
	if dirs, missing, err = s.claim(paths); err == nil {
		err = s.join(dirs)
	}
	return dirs, missing, s.locks, err
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
// database that is missing where there are paths of its set.
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
		return nil, nil, fmt.Errorf("disk: none of the paths %q is there; are their disks mounted?", paths)
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
	index   int                                         // of meta, where it is a path too
	members []member
	locks   []*os.File
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
	m, err := readMarker(s.meta)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(s.meta, storeName)); m.index > 0 && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("disk: the database of the set %s is not in %s, which is path %d of it; name the folder of the database first, or as disk.meta", m.set, s.meta, m.index)
	}
	s.id, s.index = m.set, m.index
	s.members, err = readMembers(s.meta)
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
	m, err := readMarker(dir)
	unmarked := errors.Is(err, fs.ErrNotExist)
	if slices.ContainsFunc(s.members, func(m member) bool { return m.dir == dir }) && isMissing(err) {
		return c, pathMissing, nil
	}
	switch {
	case err != nil && !unmarked:
		return c, 0, err
	case unmarked:
		state = pathNew
	case s.id == "":
		return c, 0, fmt.Errorf("disk: %s belongs to the set %s, whose database is not in %s: is that mounted? If it is gone for good, empty %s", dir, m.set, s.meta, dir)
	case m.set != s.id:
		return c, 0, fmt.Errorf("disk: %s belongs to the set %s, not to %s: it is another tier's; choose another path, or empty it", dir, m.set, s.id)
	}
	c.index = m.index
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

// join writes the markers that are missing, and then the members: a path with
// a marker that is no member yet is taken for one.
func (s *set) join(dirs []claimed) (err error) {
	marked := []claimed{{dir: s.meta, index: s.index}}
	for _, c := range dirs {
		if !sameDir(c.dir, s.meta) {
			marked = append(marked, c)
		}
	}
	for _, c := range marked {
		if s.id, err = mark(c.dir, marker{set: s.id, index: c.index}); err != nil {
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
	for line := range strings.Lines(string(text)) {
		number, quoted, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		index, err := strconv.Atoi(number)
		dir, err2 := strconv.Unquote(quoted)
		if err := errors.Join(err, err2); err != nil || index < 0 || index >= maxPaths {
			return nil, fmt.Errorf("disk: %s: the line %q is not an index and a path; remove the file if all paths are there", path, line)
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
