package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// manifestEntries are the offsets at which the changes of a manifest begin.
func manifestEntries(t *testing.T, text []byte) (at []int) {
	t.Helper()
	for off := 8; off < len(text); { // behind magic and versions
		at = append(at, off)
		off += 8 + int(binary.BigEndian.Uint32(text[off:]))
	}
	if len(at) < 4 {
		t.Fatalf("a manifest of %d changes: too few to test with", len(at))
	}
	return at
}

// tabled is a tier whose database has several tables, as a kill leaves it. Its
// newest commit is in a log.
func tabled(t *testing.T, m memory) *damagedTier {
	t.Helper()
	x := &damagedTier{o: testOptions(tiertest.Folder(t)), size: make(map[int]int), deleted: make(map[int]bool)}
	x.o.SegmentBytes = mib
	for range 5 {
		d, stop := start(t, x.o, nil)
		recoverAll(t, d)
		for range 10 {
			n := x.next
			x.next++
			x.size[n] = 1000 + 4000*(n%7)
			mustPut(t, d, m, n, x.size[n])
		}
		n := x.next - 5
		if err := d.Delete(t.Context(), []key.Key{keyOf(n)}); err != nil {
			t.Fatal(err)
		}
		x.deleted[n] = true
		stop() // makes a table
	}
	d, _ := start(t, x.o, nil)
	recoverAll(t, d)
	n := x.next
	x.size[n] = 5000
	mustPut(t, d, m, n, x.size[n])
	killed := testOptions(tiertest.Folder(t))
	copyDir(t, x.o.Paths[0], killed.Paths[0])
	x.o = killed
	return x
}

// Badger goes on, without a word, where its list of tables is gone or ends too
// early; its log still has the newest commit. All that has a header is back,
// nothing that was deleted is, also with no witness but the headers.
func TestManifestDamages(t *testing.T) {
	m := newMemory(t)
	base := tabled(t, m)
	name := func(o Options) string { return filepath.Join(o.Paths[0], folders.DatabaseName, "MANIFEST") }
	text, err := os.ReadFile(name(base.o))
	if err != nil {
		t.Fatal(err)
	}
	try := func(how string, hurt func(o Options) error) {
		t.Helper()
		x := *base
		x.o = testOptions(tiertest.Folder(t))
		copyDir(t, base.o.Paths[0], x.o.Paths[0])
		if err := hurt(x.o); err != nil {
			t.Fatal(err)
		}
		if there, all := x.check(t, m, how); there < all {
			t.Errorf("%s: %d of %d extents are back", how, there, all)
		}
	}
	put := func(text []byte) func(Options) error {
		return func(o Options) error { return os.WriteFile(name(o), text, 0o600) }
	}
	try("not hurt", func(Options) error { return nil })
	try("removed", func(o Options) error { return os.Remove(name(o)) })
	try("removed, and the witness", func(o Options) error {
		return errors.Join(os.Remove(name(o)), os.Remove(filepath.Join(o.Paths[0], metadata.WitnessName)))
	})
	try("the witness removed", func(o Options) error { return os.Remove(filepath.Join(o.Paths[0], metadata.WitnessName)) })
	for _, at := range manifestEntries(t, text) {
		try(fmt.Sprint("cut off at ", at), put(text[:at]))
		try(fmt.Sprint("cut off behind ", at), put(text[:at+3]))
		zeroed := append([]byte(nil), text...)
		clear(zeroed[at:])
		try(fmt.Sprint("zeroed from ", at), put(zeroed))
	}
	try("zeroed", put(make([]byte, len(text))))
	try("emptied", put(nil))
}

// Where a table is damaged, all that has a header is back.
func TestTableDamages(t *testing.T) {
	m := newMemory(t)
	base := tabled(t, m)
	tables, err := filepath.Glob(filepath.Join(base.o.Paths[0], folders.DatabaseName, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("%d tables: %v", len(tables), err)
	}
	rng := rand.New(rand.NewPCG(*damageSeed, 0))
	for _, table := range tables {
		info, err := os.Stat(table)
		if err != nil {
			t.Fatal(err)
		}
		for range *damageRounds / 3 {
			x := *base
			x.o = testOptions(tiertest.Folder(t))
			copyDir(t, base.o.Paths[0], x.o.Paths[0])
			at := rng.Int64N(info.Size())
			how := fmt.Sprintf("a bit at %d of %s", at, filepath.Base(table))
			flip(t, filepath.Join(x.o.Paths[0], folders.DatabaseName, filepath.Base(table)), at)
			if there, all := x.check(t, m, how); there < all {
				t.Errorf("%s: %d of %d extents are back", how, there, all)
			}
		}
	}
}
