package distrust

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/key"
)

// Name is that of the file.
const Name = "kvstored.distrusted"

const mostOfUser = 64

// ErrMany says that a user distrusts as many spaces as a user may.
var ErrMany = fmt.Errorf("the user distrusts %d spaces already; an administrator may trust them again", mostOfUser)

// Mark is who distrusts a space, and since when.
type Mark struct {
	UID   uint32
	Since time.Time // a whole second
}

// Folder is where the file lies.
type Folder interface {
	Read(name string) ([]byte, error)
	Replace(name string, text []byte) error
}

type marks = map[key.SpaceID]Mark

// List is the spaces. The zero List is empty and ready; a nil one stays empty. It is safe
// for concurrent use.
type List struct {
	now atomic.Pointer[marks] // replaced whole, under the mutex
	mu  struct {
		sync.Mutex
		folder Folder // nil: nothing is kept
	}
}

// All is every space, not to be changed.
func (l *List) All() marks {
	if l != nil && l.now.Load() != nil {
		return *l.now.Load()
	}
	return nil
}

// Has reports whether a space is distrusted.
func (l *List) Has(id key.SpaceID) bool {
	_, has := l.All()[id]
	return has
}

// Add distrusts a space from now on, also where an error says that it is not kept; a
// further call tries that again. The first mark of a space stays.
func (l *List) Add(id key.SpaceID, m Mark) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := marks{id: m}
	maps.Copy(next, l.All())
	if of := slices.DeleteFunc(slices.Collect(maps.Values(next)), func(o Mark) bool { return o.UID != m.UID }); len(of) > mostOfUser {
		return ErrMany
	}
	l.now.Store(&next)
	return l.save(next)
}

// Trust ends the distrust of a space, if there is any. After an error the file has the space
// still, and the list too.
func (l *List) Trust(id key.SpaceID) (was bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.Has(id) {
		return false, nil
	}
	next := maps.Clone(l.All())
	delete(next, id)
	if err = l.save(next); err == nil {
		l.now.Store(&next)
	}
	return true, err
}

// Keep adds what a folder has kept, and keeps the list there from now on. The error names
// what of the file is not understood; the rest counts.
func (l *List) Keep(folder Folder) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.folder = folder
	text, err := folder.Read(Name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", Name, err)
	}
	next, err := read(string(text))
	kept := len(next)
	maps.Copy(next, l.All())
	l.now.Store(&next)
	if len(next) > kept { // told while there was no folder
		err = errors.Join(err, l.save(next))
	}
	return err
}

// read understands a line for each space: its id, the user, and the second since 1970.
func read(text string) (found marks, err error) {
	found = make(marks)
	for line := range strings.Lines(text) {
		var id []byte
		var m Mark
		var since int64
		_, wrong := fmt.Sscanf(line, "%x %d %d\n", &id, &m.UID, &since)
		m.Since = time.Unix(since, 0)
		if wrong != nil || len(id) != len(key.SpaceID{}) || line != lineOf(key.SpaceID(id), m) {
			err = errors.Join(err, fmt.Errorf("%s: the line %.80q names no space, user and time: that space is trusted", Name, line))
			continue
		}
		found[key.SpaceID(id)] = m
	}
	return found, err
}

func lineOf(id key.SpaceID, m Mark) string {
	return fmt.Sprintf("%x %d %d\n", id[:], m.UID, m.Since.Unix())
}

func (l *List) save(m marks) error {
	if l.mu.folder == nil {
		return nil
	}
	var lines []string
	for id, mark := range m {
		lines = append(lines, lineOf(id, mark))
	}
	slices.Sort(lines)
	return l.mu.folder.Replace(Name, []byte(strings.Join(lines, "")))
}

// Err says how many spaces are distrusted; nil where none is.
func (l *List) Err() error {
	if n := len(l.All()); n > 0 {
		return fmt.Errorf("distrusted spaces, of which all is a miss: %d", n)
	}
	return nil
}
