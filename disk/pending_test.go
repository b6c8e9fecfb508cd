package disk

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// A Put that its caller has given up must not become resident behind a Delete
// that said the key is gone.
func TestDeleteOfAPutGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		f := newFaulty(t, o.Paths[0])
		d, _ := start(t, o, f)
		m := newMemory(t)
		mustPut(t, d, m, 1, mib)
		hang := make(chan struct{})
		f.set(nil, hang)
		ctx, giveUp := context.WithCancel(t.Context())
		put := make(chan error, 1)
		e := entryOf(t, m, 2, mib)
		go func() { put <- d.Put(ctx, e) }()
		await(t, "the write does not reach the device", func() bool { return f.hung.Load() > 0 })
		giveUp()
		wantErr(t, <-put, context.Canceled)
		e.Block.Release()
		ks := []key.Key{keyOf(2)}
		if !d.IsPending(ks[0]) || d.IsPending(keyOf(1)) || d.IsPending(keyOf(3)) {
			t.Fatal("pending is not what was given up")
		}
		if left := d.Left(ks[0].Space); len(left) != 2 || !slices.Contains(left, ks[0]) {
			t.Fatalf("left: %v", left)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		wantErr(t, d.Delete(ctx, ks), context.DeadlineExceeded)
		f.set(nil, nil)
		close(hang)
		if err := d.Delete(t.Context(), ks); err != nil || d.Has(ks[0]) || d.IsPending(ks[0]) {
			t.Fatalf("%v; resident: %t, pending: %t", err, d.Has(ks[0]), d.IsPending(ks[0]))
		}
		if left := d.Left(ks[0].Space); !slices.Equal(left, []key.Key{keyOf(1)}) {
			t.Fatalf("left: %v", left)
		}
		mustPut(t, d, m, 2, 2*mib) // other bytes
		mustGet(t, d, m, 2, 2*mib)
		checkBooks(t, d)
	})
}

// A deletion that the database has not taken is not done, though the key is
// gone from the ledger: it is back when the tier is opened again.
func TestDeletionGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		d, stop := start(t, o, nil)
		m := newMemory(t)
		mustPut(t, d, m, 1, 100_000)
		ks := []key.Key{keyOf(1)}
		endProcess(t, d.instance)
		for range 2 {
			if err := d.Delete(t.Context(), ks); err == nil {
				t.Error("deleted from a database that takes nothing")
			}
		}
		if left := d.Left(ks[0].Space); d.Has(ks[0]) || !slices.Equal(left, ks) {
			t.Errorf("left: %v", left)
		}
		stop()
		d, stop = start(t, o, nil)
		if got := recoverAll(t, d); len(got) != 1 {
			t.Errorf("%d entries are back, want 1", len(got))
		}
		if err := d.Delete(t.Context(), ks); err != nil || d.IsPending(ks[0]) {
			t.Fatalf("%v, pending: %t", err, d.IsPending(ks[0]))
		}
		stop()
		d, _ = start(t, o, nil)
		if !d.IsPending(keyOf(9)) {
			t.Error("a tier that is not scanned yet says what it has not")
		}
		if got := recoverAll(t, d); len(got) != 0 || d.IsPending(keyOf(9)) {
			t.Errorf("%d entries are back; pending: %t", len(got), d.IsPending(keyOf(9)))
		}
	})
}

// What a segment that is given back had is gone when that is committed, and may
// be stored and deleted again.
func TestSettledAfterGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := start(t, testOptions(tiertest.Folder(t)), nil)
		m := newMemory(t)
		ks := []key.Key{keyOf(1), keyOf(2), keyOf(3)}
		for n := range ks {
			mustPut(t, d, m, n+1, 100_000)
		}
		g := d.segments.leastUsed(d.volumes[0].fs)
		mustPut(t, d, m, 4, 100_000) // elsewhere: g is closed
		r := reclaim{t: d.instance}
		if err := r.empty(t.Context(), g, everything); err != nil || len(r.gone) != len(ks) {
			t.Fatalf("gave back %v, %v", r.gone, err)
		}
		checkBooks(t, d)
		mustPut(t, d, m, 1, 100_000)
		if err := d.segments.removeIdle(d.volumes[0]); err != nil || len(segmentFiles(t, d.volumes[0].dir)) != 1 {
			t.Errorf("the segment is still there; %v", err)
		}
		mustGet(t, d, m, 1, 100_000)
		mustGet(t, d, m, 4, 100_000)
		if err := d.Delete(t.Context(), append(ks, keyOf(4))); err != nil {
			t.Error(err)
		}
		for range 2 { // one that is empty and does not make way is as a put has just made it
			if err := d.segments.removeDrained(d.volumes[0]); err != nil || len(segmentFiles(t, d.volumes[0].dir)) != 1 {
				t.Errorf("a segment that does not make way is gone; %v", err)
			}
		}
	})
}
