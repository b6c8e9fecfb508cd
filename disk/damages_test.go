package disk

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/database/databasetest"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

var (
	damageRounds = flag.Int("disk-damages", 12, "how many damages TestDamages makes, and TestTableDamages of each table; 300 for a long run, whose databases have a process each")
	damageSeed   = flag.Uint64("disk-damage-seed", 1, "what TestDamages and TestTableDamages damage")
)

// opener is how a database is opened that may be damaged. In a long run a damage may be
// one that ends its process.
func opener() database.Opener {
	if *damageRounds > 12 {
		return database.Open
	}
	return databasetest.Open
}

// damagedTier is what TestDamages knows of a tier.
type damagedTier struct {
	o       Options
	size    map[int]int
	deleted map[int]bool
	next    int

	image   []byte // of a segment, as it was some time ago
	spoofed int    // payloads that hold a part of it
}

// spoofs is the number of the first of these payloads.
const spoofs = 1 << 20

// The damages are no tests in bubbles: of a database that Badger does not open a goroutine
// is left.

// Seeded damages of every file of the tier: it starts, serves no wrong byte,
// and nothing that was deleted. Where only the database is hurt, what lies in
// extents is back.
func TestDamages(t *testing.T) {
	rng := rand.New(rand.NewPCG(*damageSeed, 0))
	var rebuilt, of int
	for round := range *damageRounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) { // one that fails ends no other
			there, all := damage(t, newMemory(t), rng, 1+round%2)
			rebuilt, of = rebuilt+there, of+all
		})
	}
	t.Logf("%d of %d extents are back where only the database was hurt", rebuilt, of)
	if rebuilt*100 < of*99 {
		t.Errorf("want 99 %%")
	}
}

// damage hurts one file of a tier with so many paths, and returns how many of
// the entries in extents are back, and of how many, if only the database is hurt.
func damage(t *testing.T, m memory, rng *rand.Rand, paths int) (there, all int) {
	x := &damagedTier{o: pathOptions(t, paths), size: make(map[int]int), deleted: make(map[int]bool)}
	x.o.SegmentBytes = mib
	x.live(t, m, rng)
	files := tierFiles(t, x.o)
	name := files[rng.IntN(len(files))]
	other := files[rng.IntN(len(files))] // to swap it with
	inDatabase := func(path string) bool { return filepath.Base(filepath.Dir(path)) == folders.DatabaseName }
	how, swapped := hurt(t, rng, name, other)
	there, all = x.check(t, m, how)
	if t.Failed() {
		t.Log(how)
	}
	if !inDatabase(name) || swapped && !inDatabase(other) {
		return 0, 0
	}
	if there < all {
		t.Logf("%s: %d of %d extents are back", how, there, all)
	}
	return there, all
}

// live stores and deletes for a while, over two processes; the second is killed
// or closed.
func (x *damagedTier) live(t *testing.T, m memory, rng *rand.Rand) {
	for range 2 {
		d, stop := start(t, x.o, nil)
		recoverAll(t, d)
		for range 40 {
			n := x.next
			x.next++
			x.size[n] = 1 + rng.IntN(120_000)
			mustPut(t, d, m, n, x.size[n])
			if rng.IntN(3) == 0 {
				n = rng.IntN(x.next)
				if err := d.Delete(t.Context(), []key.Key{keyOf(n)}); err != nil {
					t.Fatal(err)
				}
				x.deleted[n] = true
			}
			if rng.IntN(10) == 0 {
				x.imitate(t, d, m, rng)
			}
			if rng.IntN(20) == 0 {
				if err := d.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if rng.IntN(2) == 0 {
			killed := pathOptions(t, len(x.o.Paths))
			killed.SegmentBytes = x.o.SegmentBytes
			for i := range x.o.Paths {
				copyDir(t, x.o.Paths[i], killed.Paths[i])
			}
			stop()
			x.o = killed
		} else {
			stop()
		}
	}
}

// imitate stores what the first segment held, headers included, as a payload,
// at the very place where it was.
func (x *damagedTier) imitate(t *testing.T, d *rig, m memory, rng *rand.Rand) {
	t.Helper()
	files := segmentFiles(t, x.o.Paths[0])
	if len(files) == 0 {
		return // all went to the other path so far
	}
	image, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	old := x.image
	if x.image = image; len(old) == 0 {
		return
	}
	n, size := spoofs+x.spoofed, 20_000+rng.IntN(200_000)
	mustPut(t, d, m, n, size) // to see where it comes to lie
	e := entryIn(t, d, n)
	if err := d.Delete(t.Context(), []key.Key{keyOf(n)}); err != nil {
		t.Fatal(err)
	}
	b, err := m.Alloc(t.Context(), size)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	copy(b.Bytes(), old[min(int(e.Extent.Offset)+database.HeaderBytes, len(old)):])
	r := tier.Record{Key: keyOf(n), Tokens: 256, Size: uint32(size), Sum: b.Seal()}
	if err := d.Put(t.Context(), tier.Entry{Record: r, Block: b}); err != nil {
		t.Fatal(err)
	}
	x.spoofed++
}

func tierFiles(t *testing.T, o Options) (files []string) {
	t.Helper()
	for _, dir := range o.Paths {
		err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// hurt does something to a file and says what.
func hurt(t *testing.T, rng *rand.Rand, path, other string) (how string, swapped bool) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Where there is something, mostly: the rest of a log or segment is zeros.
	full := max(1, len(bytes.TrimRight(text, "\x00")))
	what := ""
	switch rng.IntN(6) {
	case 5:
		what, text = "emptied", nil
	case 0:
		what = "flipped bits of"
		for range 1 + rng.IntN(8) {
			if len(text) > 0 {
				text[rng.IntN(min(full, len(text)))] ^= 1 << rng.IntN(8)
			}
		}
	case 1:
		what = "cut off"
		text = text[:rng.IntN(min(full, len(text))+1)]
	case 2:
		what = "zeroed pages of"
		for at := rng.IntN(full) &^ 4095; at < len(text) && rng.IntN(3) > 0; at += 4096 {
			clear(text[at:min(at+4096, len(text))])
		}
	case 3:
		what = "removed"
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		return what + " " + path, false
	default:
		what = "swapped with " + other
		if err := os.Rename(other, other+"~"); err != nil {
			t.Fatal(err)
		}
		if other != path {
			if err := os.Rename(path, other); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Rename(other+"~", path); err != nil {
			t.Fatal(err)
		}
		return what + " " + path, true
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return what + " " + path, false
}

// check starts the tier, a second time where the first finds out that the
// database is damaged, and returns how many of the entries in extents are there.
func (x *damagedTier) check(t *testing.T, m memory, how string) (there, all int) {
	t.Helper()
	var got map[key.Key]tier.Record
	for range 2 {
		x.o.Database = opener()
		d, err := openRig(x.o)
		if err != nil {
			t.Errorf("does not start: %v", err)
			return 0, 0
		}
		ran := make(chan error, 1)
		go func() { ran <- d.Run(context.Background()) }()
		got = make(map[key.Key]tier.Record)
		if err := d.Recover(t.Context(), func(rs []tier.Record) {
			for _, r := range rs {
				got[r.Key] = r
			}
		}); err != nil {
			t.Logf("%s: %v", how, err)
		}
		there, all = 0, 0
		known := make([]key.Key, 0, len(x.size)+x.spoofed)
		for n := range x.size {
			known = append(known, keyOf(n))
		}
		for n := range x.spoofed {
			known = append(known, keyOf(spoofs+n))
		}
		for k := range got {
			if !slices.Contains(known, k) {
				t.Errorf("%x was never stored", k.Hash[:4])
			}
		}
		for n, size := range x.size {
			err := get(t, d, m, n, size) // fails over a wrong byte
			if x.deleted[n] {
				if err == nil {
					t.Errorf("%d was deleted and is back", n)
				}
				continue
			}
			if size > 512 {
				all++
				if err == nil {
					there++
				}
			}
		}
		if err := d.Close(); err != nil {
			t.Logf("%s: close: %v", how, err)
		}
		<-ran
	}
	return there, all
}
