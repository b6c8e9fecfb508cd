package disk

import (
	"path/filepath"
	"testing"

	"github.com/kvstored/kvstored/key"
)

// What was deleted during a rebuild is not back when the process is killed
// before that is over, and the database, with its notes, is lost once more.
func TestDeletionsOutliveTwoDamages(t *testing.T) {
	o := testOptions(t.TempDir())
	m := newMemory(t)
	d, stop := start(t, o, nil)
	for i := range 10 {
		mustPut(t, d, m, i, 50_000)
	}
	stop()
	loseDatabase(t, o.Paths[0])
	d, stop = start(t, o, nil) // and not recovered
	if err := d.Delete(t.Context(), []key.Key{keyOf(3), keyOf(99)}); err != nil {
		t.Fatal(err)
	}
	killed := testOptions(t.TempDir())
	copyDir(t, o.Paths[0], killed.Paths[0])
	stop()
	loseDatabase(t, killed.Paths[0])
	d, _ = start(t, killed, nil)
	got := recoverAll(t, d)
	if _, back := got[keyOf(3)]; back || len(got) != 9 {
		t.Errorf("%d entries, the deleted one back: %t; want 9 without it", len(got), back)
	}
	if there, err := exists(filepath.Join(killed.Paths[0], gravesName)); there || err != nil {
		t.Errorf("the notes are left: %t, %v", there, err)
	}
	mustPut(t, d, m, 3, 60_000) // anew, which no note is in the way of
	recount(t, d)
}
