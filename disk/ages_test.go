package disk

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// TestAgesComeBeforeEntries: an entry that the tier answers for has its end, also between the
// scan and the hand-over to the index, which takes a while.
func TestAgesComeBeforeEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const entries = emitBatch + 1
		o, m := testOptions(tiertest.Folder(t)), newMemory(t)
		o.Ages = stale.New()
		d, stop := start(t, o, nil)
		ks := make([]key.Key, entries)
		for i := range ks {
			ks[i] = keyOf(i)
			o.Ages.Stored(ks[i].Space, []key.Hash{ks[i].Hash}, time.Hour)
			mustPut(t, d, m, i, 16)
		}
		stop()
		time.Sleep(2 * time.Hour)
		o.Ages = stale.New()
		d, _ = start(t, o, nil)
		asked := false
		err := d.Recover(t.Context(), func([]tier.Record) {
			if asked {
				return
			}
			asked = true
			have := make([]bool, entries)
			if err := d.Contains(t.Context(), ks, have); err != nil {
				t.Error(err)
			}
			for i, k := range ks {
				if have[i] && !o.Ages.Expired(k) {
					t.Errorf("entry %d is there, and past its end for two hours", i)
				}
			}
		})
		if err != nil || !asked {
			t.Errorf("recovered: %v, and handed over: %v", err, asked)
		}
	})
}

// TestAgesSurvive: the time at which an entry has expired is there again after a restart, by
// the scan and before it, and where the index was made anew from headers; an entry
// without one has none, and a TTL of its space counts from when it was written.
func TestAgesSurvive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, m := testOptions(tiertest.Folder(t)), newMemory(t)
		o.Ages = stale.New()
		d, stop := start(t, o, nil)
		large, inline, plain := keyOf(1), keyOf(2), keyOf(3)
		o.Ages.Stored(large.Space, []key.Hash{large.Hash, inline.Hash}, time.Hour)
		want := o.Ages.Of(large)
		mustPut(t, d, m, 1, 9000)
		mustPut(t, d, m, 2, 100)
		mustPut(t, d, m, 3, 9000)
		stop()

		check := func(b *stale.Book, how string, ks ...key.Key) {
			t.Helper()
			for _, k := range ks {
				if got := b.Of(k); got != want {
					t.Errorf("%s: %x has %+v, want %+v", how, k.Hash[:2], got, want)
				}
			}
			if b.Of(plain).HasTTL() {
				t.Errorf("%s: an entry without a TTL has %+v", how, b.Of(plain))
			}
		}
		o.Ages = stale.New()
		d, stop = start(t, o, nil)
		var have [3]bool
		if err := d.Contains(t.Context(), []key.Key{large, inline, plain}, have[:]); err != nil || have != [3]bool{true, true, true} {
			t.Fatalf("%v, %v", have, err)
		}
		check(o.Ages, "before the scan", large, inline)
		recoverAll(t, d)
		check(o.Ages, "after the scan", large, inline)
		stop()

		o.Ages = stale.New()
		o.Ages.Open(plain.Space, time.Minute)
		d, stop = start(t, o, nil)
		recoverAll(t, d)
		if got := o.Ages.Of(plain); !got.HasTTL() || got.Expires != got.Stored+60 || o.Ages.Of(large).Expires != want.Stored+60 {
			t.Errorf("with a TTL of the space: %+v, and %+v", got, o.Ages.Of(large))
		}
		stop()

		loseDatabase(t, filepath.Clean(o.Paths[0]))
		o.Ages = stale.New()
		d, _ = start(t, o, nil)
		if got := recoverAll(t, d); len(got) != 2 {
			t.Fatalf("%d entries are back, want those with headers", len(got))
		}
		check(o.Ages, "from headers", large)
	})
}
