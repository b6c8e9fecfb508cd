package disk

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// Entries beyond Options.Entries are refused as bytes beyond the capacity are, and a
// Trim evicts the oldest down to the low watermark, with many bytes still free.
func TestEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		o.Entries = 200
		d, _ := start(t, o, nil)
		m := newMemory(t)
		var gone []key.Key
		full := 0
		for i := range 1000 {
			size := 1
			if i%4 == 0 {
				size = 5000 // with an extent
			}
			err := put(t, d, m, i, size)
			if errors.Is(err, tier.ErrNoSpace) {
				full++
				before := len(gone)
				if gone, err = d.Trim(t.Context(), int64(size), gone); err != nil || len(gone) == before {
					t.Fatalf("put %d: trim: %v", i, err)
				}
				err = put(t, d, m, i, size)
			}
			if err != nil {
				t.Fatalf("put %d: %v", i, err)
			}
			if n := d.Stats().Entries; n > int64(o.Entries) {
				t.Fatalf("%d entries, of at most %d", n, o.Entries)
			}
		}
		for i, k := range gone {
			if k != keyOf(i) {
				t.Fatalf("victim %d is not the oldest", i)
			}
		}
		if full == 0 || full > 60 {
			t.Errorf("the tier was full %d times; a Trim is to go to the low watermark", full)
		}
		if _, err := d.Trim(t.Context(), 0, nil); err != nil {
			t.Fatal(err)
		}
		st := d.Stats()
		if most := int64(0.95 * float64(o.Entries)); st.Entries > most || st.Counters["evicted_for_entries"] != uint64(1000-st.Entries) {
			t.Errorf("%d entries left, %d of them may be; counted %d evictions for that", st.Entries, most, st.Counters["evicted_for_entries"])
		}
		recount(t, d)
	})
}

// A hole counts: every entry here hangs below a parent of its own that is absent.
func TestEntriesBelowHoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		o.Entries = 200
		d, _ := start(t, o, nil)
		m := newMemory(t)
		for i := range 400 {
			e := entryOf(t, m, i, 1)
			e.Parent, e.Depth = keyOf(100_000+i).Hash, 1
			err := d.Put(t.Context(), e)
			if errors.Is(err, tier.ErrNoSpace) {
				if _, err = d.Trim(t.Context(), 1, nil); err == nil {
					err = d.Put(t.Context(), e)
				}
			}
			e.Block.Release()
			if err != nil {
				t.Fatalf("put %d: %v", i, err)
			}
		}
		if l := d.ledger.Stats(); l.Entries+l.Holes > o.Entries || ledger.FreeEntries(d.ledger) < 0 || l.Entries < o.Entries/3 {
			t.Errorf("%d entries below %d holes, of at most %d", l.Entries, l.Holes, o.Entries)
		}
		recount(t, d)
	})
}

// A start with more entries on disk than there may be keeps those used last, takes no
// more memory than for these, and leaves nothing of the others: neither record nor
// header.
func TestRecoverySurplus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, stored := range []int{300, 1500} { // evicted from the ledger; cut while they are read, too
			o := testOptions(tiertest.Folder(t))
			m := newMemory(t)
			d, stop := start(t, o, nil)
			for i := range stored {
				size := 1
				if i%16 == 0 {
					size = 5000
				}
				mustPut(t, d, m, i, size)
			}
			stop()

			o.Entries = 100
			d, stop = start(t, o, nil)
			got := recoverAll(t, d)
			st := d.Stats()
			if len(got) > o.Entries || len(got) < 85 || int(st.Entries) != len(got) || st.Counters["recover_evicted"] != uint64(stored-len(got)) {
				t.Fatalf("recovered %d of %d, %d counted as evicted; the tier has %d", len(got), stored, st.Counters["recover_evicted"], st.Entries)
			}
			for i := stored - len(got); i < stored; i++ {
				if _, ok := got[keyOf(i)]; !ok {
					t.Fatalf("entry %d of %d is not among the %d that were kept", i, stored, len(got))
				}
			}
			mustPut(t, d, m, stored, 5000) // there is room, or a Trim would make it
			recount(t, d)
			stop()

			o.Entries = 0
			order(t, o.Paths[0])
			d, stop = start(t, o, nil)
			if again := recoverAll(t, d); len(again) != len(got)+1 {
				t.Errorf("the headers bring back %d entries, want %d", len(again), len(got)+1)
			}
			recount(t, d)
			stop()
		}
	})
}

// While recovery runs puts are held to the bound as well.
func TestEntriesWhileRecovering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		for i := range 150 {
			mustPut(t, d, m, i, 1)
		}
		stop()
		o.Entries = 100
		d, _ = start(t, o, nil)
		stored := 0
		for i := range 150 {
			switch err := put(t, d, m, 1000+i, 1); {
			case err == nil:
				stored++
			case !errors.Is(err, tier.ErrOff): // no Trim makes room yet
				t.Fatal(err)
			}
		}
		if stored != o.Entries {
			t.Errorf("%d entries were stored before recovery, of at most %d", stored, o.Entries)
		}
		recoverAll(t, d)
		if n := d.Stats().Entries; n != int64(o.Entries) || !d.Has(keyOf(1000)) {
			t.Errorf("%d entries, of at most %d; what was stored last is there: %v", n, o.Entries, d.Has(keyOf(1000)))
		}
		recount(t, d)
	})
}

// What Options.Entries may be, and what the room is under it.
func TestEntriesOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{-1, 1, 63} {
			o := testOptions(tiertest.Folder(t))
			o.Entries = n
			if _, err := openRig(o); err == nil {
				t.Errorf("%d entries: no error", n)
			}
		}
		o := testOptions(tiertest.Folder(t))
		o.Entries = 100
		d, _ := start(t, o, nil)
		m := newMemory(t)
		for i := range 10 {
			mustPut(t, d, m, i, 1)
		}
		if n := d.Room(1); n != 85 {
			t.Errorf("room for %d, want 85", n)
		}
		if err := d.Delete(context.Background(), []key.Key{keyOf(0)}); err != nil {
			t.Fatal(err)
		}
		if n := d.Room(5000); n != 86 {
			t.Errorf("room for %d, want 86", n)
		}
	})
}
