package stale

import (
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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

func spaceOf(n int) (id key.SpaceID) {
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

func keep(t *testing.T, l *Distrusted, m *memory) {
	t.Helper()
	garbled, err := l.Keep(m)
	must(t, errors.Join(garbled, err))
}

func add(t *testing.T, l *Distrusted, id key.SpaceID, m Distrust) {
	t.Helper()
	_, err := l.Add(id, m)
	must(t, err)
}

// again is what the next process knows.
func again(t *testing.T, m *memory) *Distrusted {
	t.Helper()
	l := new(Distrusted)
	keep(t, l, m)
	return l
}

// TestKept: the next process knows a distrusted space, with its first mark, until an
// administrator trusts it.
func TestKept(t *testing.T) {
	m, l := new(memory), new(Distrusted)
	keep(t, l, m)
	add(t, l, spaceOf(1), Distrust{7, since})
	add(t, l, spaceOf(2), Distrust{8, since})
	add(t, l, spaceOf(1), Distrust{9, since.Add(time.Hour)})
	next := again(t, m)
	if got := next.All(); len(got) != 2 || got[spaceOf(1)].UID != 7 || !got[spaceOf(1)].Since.Equal(since) || !next.Has(spaceOf(2)) || next.Has(spaceOf(3)) {
		t.Fatalf("%v", got)
	}
	if err := next.Err(); !strings.HasSuffix(err.Error(), ": 2") {
		t.Error(err)
	}
	if was, err := next.Trust(spaceOf(1)); !was || err != nil {
		t.Errorf("%t, %v", was, err)
	}
	if was, err := next.Trust(spaceOf(1)); was || err != nil {
		t.Errorf("again: %t, %v", was, err)
	}
	last := again(t, m)
	if last.Has(spaceOf(1)) || !last.Has(spaceOf(2)) {
		t.Errorf("%v", last.All())
	}
	_, err := last.Trust(spaceOf(2))
	must(t, err)
	if err := again(t, m).Err(); err != nil {
		t.Error(err)
	}
}

// TestBeforeTheFolder: a folder that comes late keeps the marks of before beside its own.
func TestBeforeTheFolder(t *testing.T) {
	m, l := new(memory), new(Distrusted)
	keep(t, l, m)
	add(t, l, spaceOf(1), Distrust{7, since})
	l = new(Distrusted)
	if first, err := l.Add(spaceOf(2), Distrust{7, since}); !first || !errors.Is(err, ErrNotKept) || !l.Has(spaceOf(2)) {
		t.Errorf("%t, %v", first, err)
	}
	keep(t, l, m)
	if l := again(t, m); !l.Has(spaceOf(1)) || !l.Has(spaceOf(2)) {
		t.Errorf("%v", l.All())
	}
}

// TestFailingFolder: a mark that cannot be kept holds, and one that cannot be taken out
// of the file stays.
func TestFailingFolder(t *testing.T) {
	m, l, full := new(memory), new(Distrusted), errors.New("no space")
	keep(t, l, m)
	add(t, l, spaceOf(1), Distrust{7, since})
	m.err = full
	if _, err := l.Add(spaceOf(2), Distrust{7, since}); !errors.Is(err, full) || !l.Has(spaceOf(2)) {
		t.Errorf("%v, %v", err, l.All())
	}
	if was, err := l.Trust(spaceOf(1)); !was || !errors.Is(err, full) || !l.Has(spaceOf(1)) {
		t.Errorf("%t, %v", was, err)
	}
	m.err = nil
	add(t, l, spaceOf(2), Distrust{7, since}) // tried again
	if !again(t, m).Has(spaceOf(2)) {
		t.Error("it is not kept after all")
	}
	m.err = full
	l = new(Distrusted)
	if _, err := l.Keep(m); !errors.Is(err, full) || l.Known() {
		t.Error(err, l.Known())
	}
	// What the file has is not lost by a list that could not read it.
	if _, err := l.Add(spaceOf(3), Distrust{7, since}); !errors.Is(err, ErrNotKept) {
		t.Error(err)
	}
	m.err = nil
	keep(t, l, m)
	if l = again(t, m); !l.Has(spaceOf(1)) || !l.Has(spaceOf(3)) {
		t.Errorf("%v", l.All())
	}
}

// TestManyOfOneUser: one user cannot fill the list for the others.
func TestManyOfOneUser(t *testing.T) {
	l := new(Distrusted)
	keep(t, l, new(memory))
	for i := range mostOfUser {
		add(t, l, spaceOf(i), Distrust{7, since})
	}
	if _, err := l.Add(spaceOf(mostOfUser), Distrust{7, since}); !errors.Is(err, ErrManyDistrusted) {
		t.Error(err)
	}
	add(t, l, spaceOf(0), Distrust{7, since})
	add(t, l, spaceOf(mostOfUser), Distrust{8, since})
	if err := l.Err(); !strings.HasSuffix(err.Error(), ": 65") {
		t.Error(err)
	}
}

// TestGarbled: of a file that something else has written the good lines count, and the
// others are named. A list that is nil has nothing.
func TestGarbled(t *testing.T) {
	good := lineOf(spaceOf(1), Distrust{7, since})
	for name, text := range map[string]string{
		"half a line":      good + good[:20],
		"a shorter id":     good + good[2:],
		"words":            good + "nothing is distrusted\n",
		"zeros":            good + strings.Repeat("\x00", 4096),
		"a negative user":  good + "00000000000000000000000000000002 -7 1764000000\n",
		"more on the line": good + good[:len(good)-1] + " 5\n",
		"an empty line":    good + "\n",
	} {
		var l Distrusted
		m := &memory{text: text}
		if garbled, err := l.Keep(m); err != nil || garbled == nil || !strings.Contains(garbled.Error(), DistrustFile) {
			t.Errorf("%s: %v, %v", name, garbled, err)
		}
		if len(l.All()) != 1 || !l.Has(spaceOf(1)) {
			t.Errorf("%s: %v", name, l.All())
		}
		add(t, &l, spaceOf(2), Distrust{7, since})
		if left := strings.TrimSpace(strings.TrimPrefix(text, good)); !strings.Contains(m.text, left) {
			t.Errorf("%s: what is not understood was thrown away: %q", name, m.text)
		}
	}
	var none *Distrusted
	if _, err := none.Keep(nil); none.Has(spaceOf(1)) || none.Err() != nil || err != nil {
		t.Error("a list that is not there has something")
	}
}

// hung is a Folder that answers when it is let go.
type hung struct {
	memory
	free   chan struct{}
	writes int
}

func (h *hung) Replace(name string, text []byte) error {
	<-h.free
	h.writes++
	return h.memory.Replace(name, text)
}

// TestHungFolder: calls do not wait for a device that hangs, hold nothing up, and what they
// said is written in one go once it answers.
func TestHungFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, l := &hung{free: make(chan struct{})}, new(Distrusted)
		if _, err := l.Keep(h); err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() {
				if first, err := l.Add(spaceOf(i), Distrust{7, since}); !first || err == nil || !strings.Contains(err.Error(), "does not answer") {
					t.Errorf("%t, %v", first, err)
				}
			})
		}
		synctest.Wait()
		if len(l.All()) != 20 || !l.Known() {
			t.Errorf("%d are distrusted while it hangs", len(l.All()))
		}
		calls.Wait()
		close(h.free)
		synctest.Wait()
		if h.writes > 2 || len(again(t, &h.memory).All()) != 20 {
			t.Errorf("%d writes, %q", h.writes, h.text)
		}
		if first, err := l.Add(spaceOf(3), Distrust{8, since}); first || err != nil || h.writes > 2 {
			t.Errorf("what is kept is written again: %t, %v, %d writes", first, err, h.writes)
		}
	})
}
