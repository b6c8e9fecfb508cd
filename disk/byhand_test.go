package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/record"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// recovering does what a stack does for a tier that is opened again.
func recovering(t *testing.T, k *Keeper) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			_ = k.Recover(ctx, func([]tier.Record) {})
			select {
			case <-k.Reopened():
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
}

// rebuildByHand returns what a rebuild did.
func rebuildByHand(t *testing.T, k *Keeper) (sum tier.Rebuilt) {
	t.Helper()
	if err := k.Rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "the rebuild does not end", func() bool {
		var err error
		if sum, err = k.Rebuilt(); err != nil {
			t.Fatal(err)
		}
		return !sum.Running
	})
	if sum.Bytes == 0 || sum.Bytes != sum.TotalBytes {
		t.Errorf("the rebuild saw %+v", sum)
	}
	return sum
}

// A rebuild by hand brings back records that the database has lost, drops those
// that it should not have, writes damaged headers anew, and all else stays.
func TestRebuildByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := pathOptions(t, 2)
		m := newMemory(t)
		k := keep(t, o)
		recovering(t, k)
		await(t, "the start is not over", func() bool { return k.now.Load().surveyed.Load() })
		for i := range 40 {
			works(t, k, m, i)
		}
		if sum, err := k.Rebuilt(); err != nil || sum != (tier.Rebuilt{}) {
			t.Errorf("before any: %+v, %v", sum, err)
		}
		d := k.now.Load()
		var deleted, damaged record.Entry
		if ok, err := d.db.Entry(keyOf(7), &deleted); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if err := k.Delete(t.Context(), []key.Key{keyOf(7)}); err != nil {
			t.Fatal(err)
		}
		lost := []int{3, 4, 30}
		write(t, d, func(b *metadata.Batch) {
			for _, i := range lost {
				_ = b.Delete(keyOf(i), false)
			}
			back := record.EntryKey(deleted.Key)
			_ = b.Put(&deleted, back[:], nil)
		})
		if ok, err := d.db.Entry(keyOf(11), &damaged); !ok || err != nil {
			t.Fatal(ok, err)
		}
		path := d.segments.find(damaged.Extent.Segment).path
		flip(t, path, damaged.Extent.Offset+20)
		flip(t, path, damaged.Extent.Offset+20+record.HeaderBytes/2)

		sum := rebuildByHand(t, k)
		if sum.Headers < 39 || sum.Restored != 3 || sum.Dropped != 1 || sum.Resealed != 1 {
			t.Errorf("the rebuild did %+v", sum)
		}
		check := func(k *Keeper) {
			t.Helper()
			for i := range 40 {
				if i != 7 {
					mustGetKept(t, k, m, i)
				}
			}
			_, err := k.Get(t.Context(), keyOf(7), m)
			wantErr(t, err, tier.ErrNotFound)
			recount(t, k.now.Load())
		}
		check(k)
		if sum := rebuildByHand(t, k); sum.Restored+sum.Dropped+sum.Resealed != 0 {
			t.Errorf("of what is in order a rebuild did %+v", sum)
		}
		check(k)
		if err := k.Close(); err != nil {
			t.Fatal(err)
		}
		loseDatabase(t, o.Paths[0]) // all headers are right
		again := keep(t, o)
		recovering(t, again)
		await(t, "the start is not over", func() bool { return !again.now.Load().scan.active.Load() })
		check(again)
	})
}

// A rebuild by hand is refused where it is not possible, and where deleted
// entries might come back by it; the tier goes on.
func TestRebuildByHandIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		k := keep(t, o)
		recovering(t, k)
		await(t, "the start is not over", func() bool { return k.now.Load().surveyed.Load() })
		for i := range 4 {
			works(t, k, m, i)
		}
		if err := k.Rebuild(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantErr(t, k.Rebuild(t.Context()), tier.ErrOff) // that one is not over
		await(t, "the rebuild does not end", func() bool { sum, err := k.Rebuilt(); return err == nil && !sum.Running })
		// Where the end that it begins with is not orderly, nothing is adopted.
		clean := filepath.Join(o.Paths[0], cleanName)
		if err := os.Mkdir(clean+".new", 0o700); err != nil { // in the way of the file
			t.Fatal(err)
		}
		if err := k.Rebuild(t.Context()); err != nil {
			t.Fatal(err)
		}
		await(t, "nothing is said", func() bool { _, err := k.Rebuilt(); return err != nil })
		if _, err := k.Rebuilt(); !strings.Contains(err.Error(), "headers of what was freed") {
			t.Error(err)
		}
		if err := os.Remove(clean + ".new"); err != nil {
			t.Fatal(err)
		}
		awaitOpen(t, k)
		await(t, "it is not scanned", func() bool { return !k.now.Load().scan.active.Load() })
		for i := range 4 {
			mustGetKept(t, k, m, i)
		}
		rebuildByHand(t, k)
		moved := o.Paths[0] + ".away"
		if err := os.Rename(o.Paths[0], moved); err != nil {
			t.Fatal(err)
		}
		await(t, "the tier does not notice", func() bool { return k.Trouble() != nil })
		err := k.Rebuild(t.Context())
		if _, told := k.Rebuilt(); !errors.Is(err, tier.ErrOff) || !errors.Is(told, tier.ErrOff) {
			t.Errorf("off: %v, %v", err, told)
		}
		if err := os.Rename(moved, o.Paths[0]); err != nil {
			t.Fatal(err)
		}
		awaitOpen(t, k)
	})
}

// Of a rolled back database, whose extents are others' by now, the headers are
// believed, in both paths.
func TestRebuildOfOlderRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := pathOptions(t, 2)
		m := newMemory(t)
		d, stop := start(t, o, nil)
		recoverAll(t, d)
		for i := range 30 {
			mustPut(t, d, m, i, 50_000)
		}
		var old []record.Entry
		for i := range 20 {
			var e record.Entry
			if ok, err := d.db.Entry(keyOf(i), &e); !ok || err != nil {
				t.Fatal(ok, err)
			}
			old = append(old, e)
		}
		var ks []key.Key
		for i := range 20 {
			ks = append(ks, keyOf(i))
		}
		if err := d.Delete(t.Context(), ks); err != nil {
			t.Fatal(err)
		}
		for _, i := range []int{100, 101, 5, 102, 103} { // into their old extents, and one of them anew
			mustPut(t, d, m, i, 70_000)
		}
		write(t, d, func(b *metadata.Batch) {
			for i := range old {
				dbKey := record.EntryKey(old[i].Key)
				_ = b.Put(&old[i], dbKey[:], nil)
			}
			for _, i := range []int{100, 102} {
				_ = b.Delete(keyOf(i), false)
			}
		})
		stop()
		if err := orderRebuild(o.Paths[0]); err != nil {
			t.Fatal(err)
		}
		d, _ = start(t, o, nil)
		got := recoverAll(t, d)
		want := []int{5, 100, 101, 102, 103}
		for i := 20; i < 30; i++ {
			want = append(want, i)
			mustGet(t, d, m, i, 50_000)
		}
		for _, i := range want[:5] {
			mustGet(t, d, m, i, 70_000)
		}
		if len(got) != len(want) {
			t.Errorf("%d entries, want %d", len(got), len(want))
			for k := range got {
				if !slices.ContainsFunc(want, func(i int) bool { return keyOf(i) == k }) {
					t.Errorf("%x is back", k.Hash[:2])
				}
			}
		}
		recount(t, d)
	})
}
