package stale

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

	"golang.org/x/sync/singleflight"

	"github.com/kvstored/kvstored/key"
)

// DistrustFile is that of the file.
const DistrustFile = "kvstored.distrusted"

const mostOfUser = 64

// ErrManyDistrusted says that a user distrusts as many spaces as a user may.
var ErrManyDistrusted = fmt.Errorf("the user distrusts %d spaces already; an administrator may trust them again", mostOfUser)

// Distrust is who distrusts a space, and since when.
type Distrust struct {
	UID   uint32
	Since time.Time // a whole second
}

// DistrustFolder is where the file lies.
type DistrustFolder interface {
	Read(name string) ([]byte, error)
	Replace(name string, text []byte) error
}

type marks = map[key.SpaceID]Distrust

// patience is for how long a call waits for the file; its device may hang.
const patience = 10 * time.Second

// ErrNotKept says that the list has no folder.
var ErrNotKept = errors.New("no disk tier is there to keep it")

// Distrusted is the spaces. The zero value is empty and ready; a nil one stays empty. It is safe
// for concurrent use.
type Distrusted struct {
	now atomic.Pointer[marks] // replaced whole, under the mutex
	mu  struct {
		sync.Mutex
		folder  DistrustFolder       // nil: nothing is kept
		saved   marks                // that the file has
		left    []string             // lines of the file that are not understood
		trusted map[key.SpaceID]bool // still in now, until the file has it no more
		writing chan struct{}        // closed when the file is written as the call before wanted
		found   func(key.SpaceID)    // see OnFound
	}
	writes singleflight.Group // those that are still to begin, of which there is one
}

// All is every space, not to be changed.
func (l *Distrusted) All() marks {
	if l != nil && l.now.Load() != nil {
		return *l.now.Load()
	}
	return nil
}

// Has reports whether a space is distrusted.
func (l *Distrusted) Has(id key.SpaceID) bool {
	_, has := l.All()[id]
	return has
}

// Known reports whether what an earlier process distrusted is known.
func (l *Distrusted) Known() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.folder != nil
}

// Add distrusts a space from now on, also where an error says that it is not kept; a
// further call tries that again. The first mark of a space stays, and is reported once.
func (l *Distrusted) Add(id key.SpaceID, m Distrust) (first bool, err error) {
	l.mu.Lock()
	first = !l.Has(id)
	if _, saved := l.mu.saved[id]; saved && !first && !l.mu.trusted[id] {
		l.mu.Unlock()
		return false, nil
	}
	next := marks{id: m}
	maps.Copy(next, l.All())
	if of := slices.DeleteFunc(slices.Collect(maps.Values(next)), func(o Distrust) bool { return o.UID != m.UID }); len(of) > mostOfUser {
		l.mu.Unlock()
		return false, ErrManyDistrusted
	}
	l.now.Store(&next)
	delete(l.mu.trusted, id)
	return first, l.save()
}

// Trust ends the distrust of a space, if there is any. After an error the file has the space
// still, and the list too.
func (l *Distrusted) Trust(id key.SpaceID) (was bool, err error) {
	l.mu.Lock()
	if !l.Has(id) {
		l.mu.Unlock()
		return false, nil
	}
	if l.mu.folder != nil {
		if l.mu.trusted == nil {
			l.mu.trusted = make(map[key.SpaceID]bool)
		}
		l.mu.trusted[id] = true
		if err := l.save(); err != nil {
			l.mu.Lock()
			delete(l.mu.trusted, id)
			l.mu.Unlock()
			return true, err
		}
		l.mu.Lock()
		if !l.mu.trusted[id] { // distrusted once more meanwhile
			l.mu.Unlock()
			return true, nil
		}
		delete(l.mu.trusted, id)
	}
	next := maps.Clone(l.All())
	delete(next, id)
	l.now.Store(&next)
	l.mu.Unlock()
	return true, nil
}

// Keep adds what a folder has kept, and keeps the list there from now on; after an error it
// does not. Garbled names the lines that are not understood, which stay in the file.
func (l *Distrusted) Keep(folder DistrustFolder) (garbled, err error) {
	if l == nil {
		return nil, nil
	}
	text, err := folder.Read(DistrustFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", DistrustFile, err)
	}
	found, left, garbled := read(string(text))
	l.mu.Lock()
	l.mu.folder, l.mu.saved, l.mu.left = folder, maps.Clone(found), left
	kept, was := len(found), l.All()
	maps.Copy(found, was)
	l.now.Store(&found)
	tell := l.mu.found
	if err = nil; len(found) > kept { // told while there was no folder
		err = l.save()
	} else {
		l.mu.Unlock()
	}
	for id := range found {
		if _, known := was[id]; !known && tell != nil {
			tell(id)
		}
	}
	return garbled, err
}

// OnFound has do called, by Keep, for each space that only a folder knew. It is set once.
func (l *Distrusted) OnFound(do func(key.SpaceID)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.found = do
}

// save writes the file, and unlocks the mutex, which is held. A call that comes while the
// file is written waits for one more writing, which all such calls share.
func (l *Distrusted) save() error {
	kept := l.mu.folder != nil
	l.mu.Unlock()
	if !kept {
		return ErrNotKept
	}
	select {
	case r := <-l.writes.DoChan(DistrustFile, l.write):
		return r.Err
	case <-time.After(patience):
		return fmt.Errorf("%s is not written after %v: its device does not answer", DistrustFile, patience)
	}
}

func (l *Distrusted) write() (any, error) {
	done := make(chan struct{})
	defer close(done)
	l.mu.Lock()
	before := l.mu.writing
	l.mu.writing = done
	l.mu.Unlock()
	if before != nil {
		<-before
	}
	l.mu.Lock()
	l.writes.Forget(DistrustFile) // calls from here on have something else to say
	folder, m, lines := l.mu.folder, maps.Clone(l.All()), slices.Clone(l.mu.left)
	maps.DeleteFunc(m, func(id key.SpaceID, _ Distrust) bool { return l.mu.trusted[id] })
	l.mu.Unlock()
	for id, mark := range m {
		lines = append(lines, lineOf(id, mark))
	}
	slices.Sort(lines)
	err := folder.Replace(DistrustFile, []byte(strings.Join(lines, "")))
	if err == nil {
		l.mu.Lock()
		l.mu.saved = m
		l.mu.Unlock()
	}
	return nil, err
}

// read understands a line for each space: its id, the user, and the second since 1970.
func read(text string) (found marks, left []string, garbled error) {
	found = make(marks)
	for line := range strings.Lines(text) {
		var id []byte
		var m Distrust
		var since int64
		_, wrong := fmt.Sscanf(line, "%x %d %d\n", &id, &m.UID, &since)
		m.Since = time.Unix(since, 0)
		if wrong != nil || len(id) != len(key.SpaceID{}) || line != lineOf(key.SpaceID(id), m) {
			garbled = errors.Join(garbled, fmt.Errorf("%s: the line %.80q names no space, user and time: that space is trusted", DistrustFile, line))
			left = append(left, strings.TrimSuffix(line, "\n")+"\n")
			continue
		}
		found[key.SpaceID(id)] = m
	}
	return found, left, garbled
}

func lineOf(id key.SpaceID, m Distrust) string {
	return fmt.Sprintf("%x %d %d\n", id[:], m.UID, m.Since.Unix())
}

// Err says how many spaces are distrusted; nil where none is.
func (l *Distrusted) Err() error {
	if n := len(l.All()); n > 0 {
		return fmt.Errorf("distrusted spaces, of which all is a miss: %d", n)
	}
	return nil
}
