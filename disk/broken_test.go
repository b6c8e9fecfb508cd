package disk

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// A tier whose database failed is opened again without a restart. Its entries are
// there, one that was deleted is gone, and a put that failed with its commit does not
// come back.
func TestDatabaseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		k := keep(t, o)
		awaitOpen(t, k)
		for n := range 4 {
			mustPut(t, k, m, n, 100+n%2*100_000) // in the database and in extents
		}
		if err := k.Delete(t.Context(), []key.Key{keyOf(1)}); err != nil {
			t.Fatal(err)
		}

		// A commit that fails although all of it is written.
		d := k.now.Load()
		hurt := make(chan error, 1)
		if err := d.commits.Add(&hurting{t: t, d: d, done: hurt}); err != nil {
			t.Fatal(err)
		}
		if err := <-hurt; err != nil {
			t.Fatal(err)
		}
		wantErr(t, put(t, k, m, 5, 100_000), metadata.ErrBroken)
		wantErr(t, k.Delete(t.Context(), []key.Key{keyOf(0)}), metadata.ErrBroken)
		await(t, "the tier does not end", func() bool { return k.now.Load() != d })
		got := make(map[key.Key]bool)
		err := k.Recover(t.Context(), func(rs []tier.Record) {
			for _, r := range rs {
				got[r.Key] = true
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for n, want := range map[int]bool{0: true, 1: false, 2: true, 3: true, 5: false, 9: false} {
			if got[keyOf(n)] != want {
				t.Errorf("key %d is back: %t, want %t", n, got[keyOf(n)], want)
			}
		}
		mustPut(t, k, m, 5, 100_000)
		mustGet(t, k, m, 2, 100)
		mustGet(t, k, m, 3, 100_100)
		recount(t, &rig{k, k.now.Load()})
	})
}

// hurting writes the record of key 9 as of a put, and then ends the database's
// process.
type hurting struct {
	t    *testing.T
	d    *instance
	done chan error
}

func (h *hurting) Apply(b *metadata.Batch) error { return putGhost(b, h.d) }

func (h *hurting) Committed(err error) {
	endProcess(h.t, h.d)
	h.done <- err
}

// putGhost writes a record of key 9, of this process, without a payload.
func putGhost(b *metadata.Batch, d *instance) error {
	return b.Put(&database.Entry{Key: keyOf(9), Size: 100_000, Seq: d.segments.seq.Add(1)}, nil)
}

// A broken database is not asked, and ends the tier. The next one has what it had.
func TestBrokenIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		d, stop := start(t, o, nil)
		m := newMemory(t)
		mustPut(t, d, m, 1, 100)
		endProcess(t, d.instance)
		wantErr(t, get(t, d, m, 1, 100), metadata.ErrBroken)
		wantErr(t, d.Sync(t.Context()), metadata.ErrBroken)
		<-d.ended
		wantErr(t, get(t, d, m, 1, 100), tier.ErrOff)
		stop()
		d, _ = start(t, o, nil)
		mustGet(t, d, m, 1, 100)
		if err := d.Sync(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A database that is broken is not taken for damaged by a recovery that comes
// meanwhile: nothing is lost.
func TestRecoverWhileBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		for n := range 8 {
			mustPut(t, d, m, n, 100_000)
		}
		stop()
		d, stop = start(t, o, nil)
		endProcess(t, d.instance)
		none := func([]tier.Record) { t.Error("something was recovered from a broken database") }
		wantErr(t, d.Recover(t.Context(), none), metadata.ErrBroken)
		if n := len(segmentFiles(t, o.Paths[0])); n == 0 {
			t.Error("the segments are gone")
		}
		stop()
		keepsAll(t, o, m, 8)
	})
}

// An error of a scan counts as damage only if commits go on.
func TestDamageOrBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := start(t, testOptions(tiertest.Folder(t)), nil)
		if err := d.awaitCommit(t.Context()); err != nil {
			t.Errorf("a database that works is taken for a broken one: %v", err)
		}
		endProcess(t, d.instance)
		if err := d.awaitCommit(t.Context()); err == nil {
			t.Error("a broken database is taken for a damaged one")
		}
	})
}

// Nothing is evicted while that frees nothing.
func TestTrimWhileBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		d, stop := start(t, o, nil)
		m := newMemory(t)
		for n := range 8 {
			mustPut(t, d, m, n, 100_000)
		}
		endProcess(t, d.instance)
		for _, n := range []int64{0, mib, 48 * mib} {
			out, err := d.Trim(t.Context(), n, nil)
			wantErr(t, err, metadata.ErrBroken)
			if len(out) > 0 {
				t.Errorf("for %d bytes %d entries were evicted", n, len(out))
			}
		}
		r := reclaim{t: d.instance}
		if _, err := r.evict(t.Context(), mib, heldFor, d.ledger.Evict); !errors.Is(err, metadata.ErrBroken) || len(r.gone) > 0 {
			t.Errorf("%d entries were evicted: %v", len(r.gone), err)
		}
		if err := r.evictFrom(t.Context(), d.segments.all()[0], []key.Key{keyOf(1)}); !errors.Is(err, metadata.ErrBroken) || len(r.gone) > 0 {
			t.Errorf("%d entries were evicted: %v", len(r.gone), err)
		}
		stop()
		keepsAll(t, o, m, 8)
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
		write(t, d, func(b *metadata.Batch) {
			if err := putGhost(b, d.instance); err != nil {
				t.Error(err)
			}
		})
		var have [2]bool
		if err := d.Contains(t.Context(), []key.Key{keyOf(1), keyOf(9)}, have[:]); err != nil || have != [2]bool{true, false} {
			t.Errorf("contained: %v (%v), want only the first", have, err)
		}
		wantErr(t, get(t, d, m, 9, 100_000), tier.ErrNotFound)
		d.commits.Requeue((&removal{t: d.instance, keys: []key.Key{keyOf(9)}}).orNothing()) // as a put that failed does
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
