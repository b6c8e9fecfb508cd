package distrust

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/key"
)

// memory is a Folder.
type memory struct {
	text string
	err  error
}

func (m *memory) Read(string) ([]byte, error) {
	if m.text == "" && m.err == nil {
		return nil, fs.ErrNotExist
	}
	return []byte(m.text), m.err
}

func (m *memory) Replace(_ string, text []byte) error {
	if m.err == nil {
		m.text = string(text)
	}
	return m.err
}

func space(n int) (id key.SpaceID) {
	id[0], id[15] = byte(n>>8), byte(n)
	return id
}

var since = time.Unix(1_764_000_000, 0)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// again is what the next process knows.
func again(t *testing.T, m *memory) *List {
	t.Helper()
	l := new(List)
	must(t, l.Keep(m))
	return l
}

// TestKept: the next process knows a distrusted space, with its first mark, until an
// administrator trusts it.
func TestKept(t *testing.T) {
	m, l := new(memory), new(List)
	must(t, l.Keep(m))
	must(t, l.Add(space(1), Mark{7, since}))
	must(t, l.Add(space(2), Mark{8, since}))
	must(t, l.Add(space(1), Mark{9, since.Add(time.Hour)}))
	next := again(t, m)
	if got := next.All(); len(got) != 2 || got[space(1)].UID != 7 || !got[space(1)].Since.Equal(since) || !next.Has(space(2)) || next.Has(space(3)) {
		t.Fatalf("%v", got)
	}
	if err := next.Err(); !strings.HasSuffix(err.Error(), ": 2") {
		t.Error(err)
	}
	if was, err := next.Trust(space(1)); !was || err != nil {
		t.Errorf("%t, %v", was, err)
	}
	if was, err := next.Trust(space(1)); was || err != nil {
		t.Errorf("again: %t, %v", was, err)
	}
	last := again(t, m)
	if last.Has(space(1)) || !last.Has(space(2)) {
		t.Errorf("%v", last.All())
	}
	_, err := last.Trust(space(2))
	must(t, err)
	if err := again(t, m).Err(); err != nil {
		t.Error(err)
	}
}

// TestBeforeTheFolder: a folder that comes late keeps the marks of before beside its own.
func TestBeforeTheFolder(t *testing.T) {
	m, l := new(memory), new(List)
	must(t, l.Keep(m))
	must(t, l.Add(space(1), Mark{7, since}))
	l = new(List)
	must(t, l.Add(space(2), Mark{7, since}))
	must(t, l.Keep(m))
	if l := again(t, m); !l.Has(space(1)) || !l.Has(space(2)) {
		t.Errorf("%v", l.All())
	}
}

// TestFailingFolder: a mark that cannot be kept holds, and one that cannot be taken out
// of the file stays.
func TestFailingFolder(t *testing.T) {
	m, l, full := new(memory), new(List), errors.New("no space")
	must(t, l.Keep(m))
	must(t, l.Add(space(1), Mark{7, since}))
	m.err = full
	if err := l.Add(space(2), Mark{7, since}); !errors.Is(err, full) || !l.Has(space(2)) {
		t.Errorf("%v, %v", err, l.All())
	}
	if was, err := l.Trust(space(1)); !was || !errors.Is(err, full) || !l.Has(space(1)) {
		t.Errorf("%t, %v", was, err)
	}
	m.err = nil
	must(t, l.Add(space(2), Mark{7, since})) // tried again
	if !again(t, m).Has(space(2)) {
		t.Error("it is not kept after all")
	}
	m.err = full
	if err := new(List).Keep(m); !errors.Is(err, full) {
		t.Error(err)
	}
}

// TestManyOfOneUser: one user cannot fill the list for the others.
func TestManyOfOneUser(t *testing.T) {
	var l List
	for i := range mostOfUser {
		must(t, l.Add(space(i), Mark{7, since}))
	}
	if err := l.Add(space(mostOfUser), Mark{7, since}); !errors.Is(err, ErrMany) {
		t.Error(err)
	}
	must(t, l.Add(space(0), Mark{7, since}))
	must(t, l.Add(space(mostOfUser), Mark{8, since}))
	if err := l.Err(); !strings.HasSuffix(err.Error(), ": 65") {
		t.Error(err)
	}
}

// TestGarbled: of a file that something else has written the good lines count, and the
// others are named. A list that is nil has nothing.
func TestGarbled(t *testing.T) {
	good := lineOf(space(1), Mark{7, since})
	for name, text := range map[string]string{
		"half a line":      good + good[:20],
		"a shorter id":     good + good[2:],
		"words":            good + "nothing is distrusted\n",
		"zeros":            good + strings.Repeat("\x00", 4096),
		"a negative user":  good + "00000000000000000000000000000002 -7 1764000000\n",
		"more on the line": good + good[:len(good)-1] + " 5\n",
		"an empty line":    good + "\n",
	} {
		var l List
		if err := l.Keep(&memory{text: text}); err == nil || !strings.Contains(err.Error(), Name) {
			t.Errorf("%s: %v", name, err)
		}
		if len(l.All()) != 1 || !l.Has(space(1)) {
			t.Errorf("%s: %v", name, l.All())
		}
	}
	var none *List
	if none.Has(space(1)) || none.Err() != nil || none.Keep(nil) != nil {
		t.Error("a list that is not there has something")
	}
}
