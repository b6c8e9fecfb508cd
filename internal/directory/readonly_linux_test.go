package directory

import (
	"testing"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/pages"
)

// A client can map the directory to read it, and not to write.
func TestClientsCannotWrite(t *testing.T) {
	mem, file, err := arena.NewReadOnly("directory", Bytes(stressArena))
	if err != nil {
		t.Fatal(err)
	}
	defer arena.CloseReadOnly(mem, file)
	if m, err := pages.Map(file, Bytes(stressArena), true); err == nil {
		t.Error("a client can map the directory to write", pages.Unmap(m))
	}
	d, err := New(mem, stressArena)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := pages.Map(file, Bytes(stressArena), false)
	if err != nil {
		t.Fatal(err)
	}
	defer pages.Unmap(theirs) //nolint:errcheck // a test's
	r, err := Open(theirs)
	if err != nil {
		t.Fatal(err)
	}
	d.Put(numbered(1), 0, AlignBytes, 7)
	if p, ok := r.Find(numbered(1)); !ok || !r.Holds(p) || p.Sum != 7 {
		t.Errorf("a reader of the mapping finds %+v, %t", p, ok)
	}
}
