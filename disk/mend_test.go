package disk

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/record"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// A database that failed is opened again without a restart. What was there is,
// what was deleted meanwhile is gone, and of a put that failed with the commit
// nothing comes back.
func TestMend(t *testing.T) {
	o := testOptions(t.TempDir())
	m := newMemory(t)
	d, stop := start(t, o, nil)
	for n := range 4 {
		mustPut(t, d, m, n, 100+n%2*100_000) // in the database and in extents
	}

	// A commit that fails although all of it is written.
	hurt := make(chan error, 1)
	if err := d.commits.add(&hurting{store: d.db, done: hurt}); err != nil {
		t.Fatal(err)
	}
	if err := <-hurt; err != nil {
		t.Fatal(err)
	}
	ghost := &writing{t: d, done: make(chan error, 1)}
	e := entryOf(t, m, 9, 100_000)
	defer e.Block.Release()
	var err error
	if ghost.id, _, err = d.begin(e); err != nil {
		t.Fatal(err)
	}
	ghost.entry.Key = e.Key
	ghost.committed(errors.Join(errUncertain, errBroken))
	wantErr(t, <-ghost.done, errBroken)

	if err := d.Delete(t.Context(), []key.Key{keyOf(1)}); err != nil && !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if err = put(t, d, m, 5, 100_000); err == nil {
			break
		}
		wantErr(t, err, errBroken)
		if time.Now().After(deadline) {
			t.Fatal("the database is never opened again")
		}
		time.Sleep(time.Millisecond)
	}
	for _, n := range []int{0, 2} {
		mustGet(t, d, m, n, 100)
	}
	mustGet(t, d, m, 3, 100_100)
	for d.commits.queued() > 0 {
		time.Sleep(time.Millisecond)
	}
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
}

// hurting writes the record of key 9 as of a put, and then says that the
// database has failed.
type hurting struct {
	store *store
	done  chan error
}

func (h *hurting) apply(b *batch) error {
	w := writing{}
	w.entry.Key, w.entry.Size = keyOf(9), 100_000
	w.key = record.EntryKey(keyOf(9))
	return b.put(&w.entry, w.key[:], w.value[:])
}

func (h *hurting) committed(err error) {
	h.store.failed(errors.New("a test says so"))
	h.done <- err
}

// A broken database is left alone while somebody uses it.
func TestMendWaits(t *testing.T) {
	d, _ := start(t, testOptions(t.TempDir()), nil)
	m := newMemory(t)
	mustPut(t, d, m, 1, 100)
	if _, err := d.db.enter(); err != nil {
		t.Fatal(err)
	}
	d.db.failed(errors.New("a test says so"))
	if err := d.db.mend(); err != nil || !d.db.broken.Load() {
		t.Fatalf("closed under who uses it: %v", err)
	}
	wantErr(t, get(t, d, m, 1, 100), errBroken)
	d.db.leave()
	awaitMended(t, d)
	mustGet(t, d, m, 1, 100)
	if err := d.Sync(context.Background()); err != nil {
		t.Error(err)
	}
}

// A database that is only waiting to be mended is not taken for damaged by a
// recovery that comes meanwhile: nothing is lost.
func TestRecoverWhileBroken(t *testing.T) {
	o := testOptions(t.TempDir())
	m := newMemory(t)
	d, stop := start(t, o, nil)
	for n := range 8 {
		mustPut(t, d, m, n, 100_000)
	}
	stop()
	d, _ = start(t, o, nil)
	if _, err := d.db.enter(); err != nil { // so that it is not mended yet
		t.Fatal(err)
	}
	d.db.failed(errors.New("a test says so"))
	none := func([]tier.Record) { t.Error("something was recovered from a broken database") }
	wantErr(t, d.Recover(t.Context(), none), errBroken)
	if n := len(segmentFiles(t, o.Paths[0])); n == 0 {
		t.Error("the segments are gone")
	}
	d.db.leave()
	awaitMended(t, d)
	if got := recoverAll(t, d); len(got) != 8 {
		t.Errorf("%d entries are back, want 8", len(got))
	}
	for n := range 8 {
		mustGet(t, d, m, n, 100_000)
	}
}

// Whatever a scan falls over is damage only if commits go on.
func TestDamageOrBroken(t *testing.T) {
	d, _ := start(t, testOptions(t.TempDir()), nil)
	if d.commitFails(t.Context()) {
		t.Error("a database that works is taken for a broken one")
	}
	if _, err := d.db.enter(); err != nil {
		t.Fatal(err)
	}
	d.db.failed(errors.New("a test says so"))
	if !d.commitFails(t.Context()) {
		t.Error("a broken database is taken for a damaged one")
	}
	d.db.leave()
	awaitMended(t, d)
}

func awaitMended(t *testing.T, d *Tier) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); d.db.broken.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the database is never opened again")
		}
	}
}
