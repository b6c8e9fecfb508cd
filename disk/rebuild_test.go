package disk

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/record"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

var damageRounds = flag.Int("disk-damages", 12, "how many damages TestDamages makes; 300 for a long run")

// loseDatabase ends a tier's database as a damage of it would.
func loseDatabase(t *testing.T, meta string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(meta, storeName, "MANIFEST"), []byte("garbage, and quite a lot of it"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What was in extents is back when the database is lost, with all that is known
// of it; what was deleted, evicted or replaced is not, whether the process was
// closed or killed.
func TestRebuild(t *testing.T) {
	o := pathOptions(t, 2)
	m := newMemory(t)
	d, stop := start(t, o, nil)
	want := make(map[key.Key]tier.Record)
	for i := range 60 {
		e := entryOf(t, m, i, 1000+i*5000)
		e.Depth, e.Tokens = uint32(i), 100+uint32(i)
		if i > 0 {
			e.Parent = keyOf(i - 1).Hash
		}
		if err := d.Put(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		e.Block.Release()
		want[e.Key] = e.Record
	}
	drop := func(ns ...int) {
		for _, n := range ns {
			if err := d.Delete(t.Context(), []key.Key{keyOf(n)}); err != nil {
				t.Fatal(err)
			}
			delete(want, keyOf(n))
		}
	}
	drop(3, 4, 5, 20, 40, 59)
	mustPut(t, d, m, 100, 9000) // into what is free, so that the rest of that is covered
	e := entryOf(t, m, 4, 21_000)
	if err := d.Put(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	e.Block.Release()
	want[e.Key] = e.Record
	want[keyOf(100)] = tier.Record{Key: keyOf(100), Tokens: 256, Size: 9000, Sum: 0}

	killed := pathOptions(t, 2) // as a kill would leave it: all is with the kernel
	for i := range o.Paths {
		copyDir(t, o.Paths[i], killed.Paths[i])
	}
	stop()
	for name, o := range map[string]Options{"closed": o, "killed": killed} {
		for range 2 { // what a rebuild wrote is there to be lost again
			loseDatabase(t, o.Paths[0])
			d, stop := start(t, o, nil)
			got := recoverAll(t, d)
			for k, r := range want {
				if g, is := got[k]; !is || g != r && r.Sum != 0 {
					t.Errorf("%s: %x is %+v, want %+v", name, k.Hash[:2], g, r)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%s: %d entries are back, want %d", name, len(got), len(want))
			}
			for i := range 60 {
				if _, is := want[keyOf(i)]; is && i != 4 {
					mustGet(t, d, m, i, 1000+i*5000)
				}
			}
			mustPut(t, d, m, 200, 50_000)
			mustGet(t, d, m, 200, 50_000)
			if err := d.Delete(t.Context(), []key.Key{keyOf(200)}); err != nil {
				t.Fatal(err)
			}
			recount(t, d)
			stop()
		}
	}
}

// A database that comes back without its last commits, which Badger does not
// mind, is damaged: what was deleted by them would be back, what was stored gone.
func TestLostCommits(t *testing.T) {
	o := testOptions(t.TempDir())
	m := newMemory(t)
	d, stop := start(t, o, nil)
	for i := range 20 {
		mustPut(t, d, m, i, 50_000)
	}
	stop()
	older := filepath.Join(t.TempDir(), "badger")
	copyDir(t, filepath.Join(o.Paths[0], storeName), older)
	d, stop = start(t, o, nil)
	recoverAll(t, d)
	if err := d.Delete(t.Context(), []key.Key{keyOf(7)}); err != nil {
		t.Fatal(err)
	}
	mustPut(t, d, m, 30, 50_000)
	stop()
	if err := os.RemoveAll(filepath.Join(o.Paths[0], storeName)); err != nil {
		t.Fatal(err)
	}
	copyDir(t, older, filepath.Join(o.Paths[0], storeName))
	d, _ = start(t, o, nil)
	got := recoverAll(t, d)
	if _, back := got[keyOf(7)]; back || len(got) != 20 {
		t.Fatalf("%d entries, the deleted one back: %t; want 20 without it", len(got), back)
	}
	mustGet(t, d, m, 30, 50_000)
	recount(t, d)
}

// A payload that holds headers of others, at whatever place they would be
// right, is a payload: before and after it is freed, and when what it lay in
// is partly in use again.
func TestHeadersAreNotImitated(t *testing.T) {
	o := testOptions(t.TempDir())
	m := newMemory(t)
	d, stop := start(t, o, nil)
	const size = 60_000
	for i := range 20 {
		mustPut(t, d, m, i, size)
	}
	// All of the segment as it is now: every header, byte for byte.
	f, err := os.Open(segmentFiles(t, o.Paths[0])[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck
	image := make([]byte, 8*mib)
	if _, err := io.ReadFull(f, image); err != nil {
		t.Fatal(err)
	}
	var all []key.Key
	for i := range 20 {
		all = append(all, keyOf(i))
	}
	if err := d.Delete(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	// A chunk that lies where they did, and is what lay there: from the second
	// page of the file on, so that all but the first header are in place.
	spoof := func(n, size int) {
		b, err := m.Alloc(t.Context(), size)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Release()
		copy(b.Bytes(), image[record.HeaderBytes:])
		sum := b.Seal()
		r := tier.Record{Key: keyOf(n), Tokens: 256, Size: uint32(size), Sum: sum}
		if err := d.Put(t.Context(), tier.Entry{Record: r, Block: b}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(name string, o Options, want ...int) {
		t.Helper()
		copied := testOptions(t.TempDir())
		copyDir(t, o.Paths[0], copied.Paths[0])
		loseDatabase(t, copied.Paths[0])
		c, stop := start(t, copied, nil)
		defer stop()
		got := recoverAll(t, c)
		for _, n := range want {
			if _, is := got[keyOf(n)]; !is {
				t.Errorf("%s: %d is not back", name, n)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d entries are back, want %v", name, len(got), want)
		}
	}
	spoof(50, 20*(size+8192))
	var e record.Entry
	if found, err := d.db.entry(keyOf(50), &e); err != nil || !found || e.Extent.Offset != 0 {
		t.Fatalf("the imitation does not lie where it should: %+v, %v", e.Extent, err)
	}
	check("stored", o, 50)
	if err := d.Delete(t.Context(), []key.Key{keyOf(50)}); err != nil {
		t.Fatal(err)
	}
	check("deleted", o)
	mustPut(t, d, m, 51, 100_000) // over the tombstone, and the first two of the old headers
	check("used again in part", o, 51)
	if err := d.Delete(t.Context(), []key.Key{keyOf(51)}); err != nil {
		t.Fatal(err)
	}
	check("and that deleted", o)
	stop()
}

// damagedTier is what TestDamages knows of a tier.
type damagedTier struct {
	o       Options
	size    map[int]int
	deleted map[int]bool
	next    int
}

// Seeded damages of every file of the tier: it starts, serves no wrong byte,
// and nothing that was deleted. Where only the database is hurt, what lies in
// extents is back.
func TestDamages(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	m := newMemory(t)
	var rebuilt, of int
	for round := range *damageRounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) { // one that fails ends no other
			there, all := damage(t, m, rng, 1+round%2)
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
	x.live(t, m, rng)
	files := tierFiles(t, x.o)
	name := files[rng.IntN(len(files))]
	other := files[rng.IntN(len(files))] // to swap it with
	inDatabase := func(path string) bool { return filepath.Base(filepath.Dir(path)) == storeName }
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
			if rng.IntN(20) == 0 {
				if err := d.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if rng.IntN(2) == 0 {
			killed := pathOptions(t, len(x.o.Paths))
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
	switch rng.IntN(5) {
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
		d, err := open(x.o)
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
