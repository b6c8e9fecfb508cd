package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/record"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// A database that failed is opened again without a restart. Its entries are
// there, one deleted meanwhile is gone, and a put that failed with its commit
// does not come back.
func TestMend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		for n := range 4 {
			mustPut(t, d, m, n, 100+n%2*100_000) // in the database and in extents
		}

		// A commit that fails although all of it is written.
		hurt := make(chan error, 1)
		if err := d.commits.Add(&hurting{t: t, d: d, done: hurt}); err != nil {
			t.Fatal(err)
		}
		if err := <-hurt; err != nil {
			t.Fatal(err)
		}
		ghost := &writing{t: d, done: make(chan error, 1)}
		e := entryOf(t, m, 9, 100_000)
		defer e.Block.Release()
		var err error
		if ghost.id, _, err = d.fills.begin(e); err != nil {
			t.Fatal(err)
		}
		ghost.entry.Key = e.Key
		ghost.Committed(errors.Join(metadata.ErrUncertain, metadata.ErrBroken))
		wantErr(t, <-ghost.done, metadata.ErrBroken)

		if err := d.Delete(t.Context(), []key.Key{keyOf(1)}); err != nil && !errors.Is(err, metadata.ErrBroken) {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); ; {
			if err = put(t, d, m, 5, 100_000); err == nil {
				break
			}
			wantErr(t, err, metadata.ErrBroken)
			if time.Now().After(deadline) {
				t.Fatal("the database is never opened again")
			}
			time.Sleep(time.Millisecond)
		}
		for _, n := range []int{0, 2} {
			mustGet(t, d, m, n, 100)
		}
		mustGet(t, d, m, 3, 100_100)
		awaitCommitted(t, d)
		recount(t, d)
		stop()

		d, _ = start(t, o, nil)
		got := recoverAll(t, d)
		for n, want := range map[int]bool{0: true, 1: false, 2: true, 3: true, 5: true, 9: false} {
			if _, is := got[keyOf(n)]; is != want {
				t.Errorf("key %d is back: %t, want %t", n, is, want)
			}
		}
		recount(t, d)
	})
}

// hurting writes the record of key 9 as of a put, and then ends the database's
// process.
type hurting struct {
	t    *testing.T
	d    *Tier
	done chan error
}

func (h *hurting) Apply(b *metadata.Batch) error {
	w := writing{}
	w.entry.Key, w.entry.Size, w.entry.Seq = keyOf(9), 100_000, 1<<63
	w.key = record.EntryKey(keyOf(9))
	return b.Put(&w.entry, w.key[:], w.value[:])
}

func (h *hurting) Committed(err error) {
	endProcess(h.t, h.d)
	h.done <- err
}

// A broken database is not asked until it is open again.
func TestBrokenIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := startBreakable(t, testOptions(tiertest.Folder(t)))
		m := newMemory(t)
		mustPut(t, d, m, 1, 100)
		mend := breakStore(t, d)
		wantErr(t, get(t, d, m, 1, 100), metadata.ErrBroken)
		mend()
		awaitMended(t, d)
		mustGet(t, d, m, 1, 100)
		if err := d.Sync(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// A database that is only waiting to be mended is not taken for damaged by a
// recovery that comes meanwhile: nothing is lost.
func TestRecoverWhileBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		for n := range 8 {
			mustPut(t, d, m, n, 100_000)
		}
		stop()
		d, _ = startBreakable(t, o)
		mend := breakStore(t, d)
		none := func([]tier.Record) { t.Error("something was recovered from a broken database") }
		wantErr(t, d.Recover(t.Context(), none), metadata.ErrBroken)
		if n := len(segmentFiles(t, o.Paths[0])); n == 0 {
			t.Error("the segments are gone")
		}
		mend()
		awaitMended(t, d)
		if got := recoverAll(t, d); len(got) != 8 {
			t.Errorf("%d entries are back, want 8", len(got))
		}
		for n := range 8 {
			mustGet(t, d, m, n, 100_000)
		}
	})
}

// An error of a scan counts as damage only if commits go on.
func TestDamageOrBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := startBreakable(t, testOptions(tiertest.Folder(t)))
		if (&recovery{t: d}).commitFails(t.Context()) {
			t.Error("a database that works is taken for a broken one")
		}
		mend := breakStore(t, d)
		if !(&recovery{t: d}).commitFails(t.Context()) {
			t.Error("a broken database is taken for a damaged one")
		}
		mend()
		awaitMended(t, d)
	})
}

// A database that does not open, and that is its own fault, ends the tier; the
// next one moves it aside.
func TestMendGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		d := openBreakable(t, o)
		mend := breakStore(t, d)
		dir := filepath.Join(o.Paths[0], folders.DatabaseName)
		manifest := filepath.Join(dir, "MANIFEST")
		if err := os.WriteFile(manifest, []byte("this is none of Badger's"), 0o600); err != nil {
			t.Fatal(err)
		}
		mend()
		wantErr(t, d.Run(t.Context()), metadata.ErrDamaged)
		wantErr(t, d.Close(), metadata.ErrBroken)
		d, _ = start(t, o, nil)
		recoverAll(t, d)
		if _, err := os.Stat(filepath.Join(o.Paths[0], metadata.DamagedName)); err != nil {
			t.Error(err)
		}
	})
}

// A tier that is closed while its database is opened again opens nothing
// afterwards, and lets go of everything.
func TestCloseDuringMend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d := openBreakable(t, o)
		ran := make(chan error, 1)
		go func() { ran <- d.Run(context.Background()) }()
		mustPut(t, d, m, 1, 100_000)
		mend := breakStore(t, d)
		closed := make(chan error, 1)
		go func() { closed <- d.Close() }()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		mend()
		if err := <-closed; err != nil && !errors.Is(err, metadata.ErrBroken) {
			t.Error(err)
		}
		if err := d.db.Mend(); err != nil || d.db.Works() == nil {
			t.Errorf("mended after the end: %v", err)
		}
		d, _ = start(t, o, nil)
		if got := recoverAll(t, d); len(got) != 1 {
			t.Errorf("%d entries are back, want 1", len(got))
		}
		if _, err := os.Stat(filepath.Join(o.Paths[0], metadata.DamagedName)); err == nil {
			t.Error("the database was moved aside")
		}
	})
}

// Nothing is evicted while that frees nothing.
func TestTrimWhileBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := startBreakable(t, testOptions(tiertest.Folder(t)))
		m := newMemory(t)
		for n := range 8 {
			mustPut(t, d, m, n, 100_000)
		}
		mend := breakStore(t, d)
		for _, n := range []int64{0, mib, 48 * mib} {
			out, err := d.Trim(t.Context(), n, nil)
			wantErr(t, err, metadata.ErrBroken)
			if len(out) > 0 {
				t.Errorf("for %d bytes %d entries were evicted", n, len(out))
			}
		}
		if out, _, err := (eviction{t: d}).evict(t.Context(), mib, nil, heldFor, d.ledger.Evict); !errors.Is(err, metadata.ErrBroken) || len(out) > 0 {
			t.Errorf("%d entries were evicted: %v", len(out), err)
		}
		if out, err := (eviction{t: d}).evictFrom(t.Context(), d.segments.all()[0], []key.Key{keyOf(1)}, nil); !errors.Is(err, metadata.ErrBroken) || len(out) > 0 {
			t.Errorf("%d entries were evicted: %v", len(out), err)
		}
		mend()
		awaitMended(t, d)
		for n := range 8 {
			mustGet(t, d, m, n, 100_000)
		}
		recount(t, d)
	})
}

// The record of a put that failed, and that is not removed yet, does not count
// as stored while recovery is due.
func TestGhostIsNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		mustPut(t, d, m, 1, 100_000)
		stop()
		d, stop = start(t, o, nil)
		hurt := make(chan error, 1)
		if err := d.commits.Add(&hurting{t: t, d: d, done: hurt}); err != nil {
			t.Fatal(err)
		}
		if err := <-hurt; err != nil {
			t.Fatal(err)
		}
		awaitMended(t, d)
		var have [2]bool
		if err := d.Contains(t.Context(), []key.Key{keyOf(1), keyOf(9)}, have[:]); err != nil || have != [2]bool{true, false} {
			t.Errorf("contained: %v (%v), want only the first", have, err)
		}
		wantErr(t, get(t, d, m, 9, 100_000), tier.ErrNotFound)
		d.commits.Requeue((&removal{t: d, keys: []key.Key{keyOf(9)}}).orNothing()) // as a put that failed does
		mustPut(t, d, m, 9, 100_000)
		mustGet(t, d, m, 9, 100_000)
		recoverAll(t, d)
		stop()
		d, _ = start(t, o, nil)
		if got := recoverAll(t, d); len(got) != 2 {
			t.Errorf("%d entries are back, want 2", len(got))
		}
		mustGet(t, d, m, 9, 100_000)
	})
}

func awaitMended(t *testing.T, d *Tier) {
	t.Helper()
	await(t, "the database is never opened again", func() bool { return d.db.Works() == nil })
}

func awaitCommitted(t *testing.T, d *Tier) {
	t.Helper()
	await(t, "what is queued is never committed", func() bool { return d.commits.Queued() == 0 })
}

// awaitEvery is how often it is looked for what must come.
const awaitEvery = 10 * time.Millisecond

func await(t *testing.T, otherwise string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(awaitEvery) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
	}
}
