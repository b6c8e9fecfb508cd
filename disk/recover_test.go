package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

func TestRestartBringsEverythingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(t.TempDir())
		m := newMemory(t)
		d, stop := start(t, o, nil)
		want := make(map[key.Key]tier.Record)
		for i := range 60 {
			e := entryOf(t, m, i, sizes[i%7])
			e.Depth, e.Tokens = uint32(i), 100+uint32(i)
			if i > 0 {
				e.Parent = keyOf(i - 1).Hash
			}
			if err := d.Put(context.Background(), e); err != nil {
				t.Fatal(err)
			}
			e.Block.Release()
			want[e.Key] = e.Record
		}
		used := d.Stats().UsedBytes
		stop()

		d, _ = start(t, o, nil)
		// Before the scan, the database answers.
		mustGet(t, d, m, 7, sizes[0])
		have := make([]bool, 1)
		if err := d.Contains(context.Background(), []key.Key{keyOf(8)}, have); err != nil || !have[0] {
			t.Fatalf("contains before the scan: %v %v", have, err)
		}
		mustPut(t, d, m, 9, sizes[2]) // there already, and must not be written again
		mustPut(t, d, m, 100, 70_000) // new
		mustPut(t, d, m, 101, 300)    // in the database
		got := recoverAll(t, d)
		if len(got) != len(want) {
			t.Fatalf("recovered %d entries, want %d", len(got), len(want))
		}
		for k, r := range want {
			if got[k] != r {
				t.Fatalf("recovered %+v, want %+v", got[k], r)
			}
		}
		for i := range 60 {
			mustGet(t, d, m, i, sizes[i%7])
		}
		mustGet(t, d, m, 100, 70_000)
		mustGet(t, d, m, 101, 300)
		s := d.Stats()
		if s.Entries != 62 || s.UsedBytes != used+extentBytes(70_000) || s.Counters["recovering"] != 0 || s.Counters["recover_lost"] != 0 {
			t.Fatalf("stats after recovery: %+v", s)
		}
		checkBooks(t, d)
	})
}

func TestDeleteDuringRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		for i := range 10 {
			mustPut(t, d, m, i, 20_000)
		}
		stop()
		d, stop = start(t, o, nil)
		if err := d.Delete(context.Background(), []key.Key{keyOf(1), keyOf(2), keyOf(3)}); err != nil {
			t.Fatal(err)
		}
		wantErr(t, get(t, d, m, 1, 20_000), tier.ErrNotFound)
		mustPut(t, d, m, 2, 30_000)
		r := &recovery{t: d.instance}
		if err := r.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Of these the records have been read.
		if err := d.Delete(t.Context(), []key.Key{keyOf(4), keyOf(5)}); err != nil {
			t.Fatal(err)
		}
		mustPut(t, d, m, 5, 30_000)
		if err := r.keep(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []key.Key
		r.end(t.Context(), func(rs []tier.Record) {
			for _, r := range rs {
				if r.Key != keyOf(5) { // it may be told once more, as it is there
					got = append(got, r.Key)
				}
			}
		})
		if len(got) != 5 {
			t.Fatalf("recovered %d entries, want 5", len(got))
		}
		for round := range 2 {
			for _, i := range []int{1, 3, 4} {
				wantErr(t, get(t, d, m, i, 20_000), tier.ErrNotFound)
			}
			mustGet(t, d, m, 2, 30_000)
			mustGet(t, d, m, 5, 30_000)
			checkBooks(t, d)
			if stop(); round == 0 {
				d, stop = start(t, o, nil)
				recoverAll(t, d)
			}
		}
	})
}

func TestRecencySurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		for i := range 40 {
			mustPut(t, d, m, i, mib)
		}
		// Records are rewritten at most once a minute: make them old.
		for i := range 40 {
			ageRecord(t, d, keyOf(i), 1000+uint32(i))
		}
		for i := range 5 {
			mustGet(t, d, m, i, mib)
			d.Touch([]key.Key{keyOf(i)})
		}
		d.instance.saveUses()
		stop()
		d, _ = start(t, o, nil)
		recoverAll(t, d)
		out, err := d.Trim(context.Background(), 8*mib, nil)
		if err != nil || len(out) == 0 {
			t.Fatalf("trim: %d keys, %v", len(out), err)
		}
		for i := range 5 {
			if slices.Contains(out, keyOf(i)) {
				t.Fatalf("key %d was used last and is evicted first: %d victims", i, len(out))
			}
		}
		if !slices.Contains(out, keyOf(5)) {
			t.Fatal("the least recently used key stayed")
		}
	})
}

// Each start that is written to before its scan takes a new segment while there is room for
// one. Where there is none a put is to be tried again (ErrOff): the scan's end gives the room
// in the old segments back, and new ones are not made before that is used.
func TestRoomAfterRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		var there []int
		var refused, files int
		for i := 0; refused < 3; i++ {
			d, stop := start(t, o, nil)
			switch err := put(t, d, m, i, 100_000); {
			case errors.Is(err, tier.ErrOff) && !errors.Is(err, tier.ErrNoSpace):
				refused++
				recoverAll(t, d)
				mustPut(t, d, m, i, 100_000)
				files = len(segmentFiles(t, o.Paths[0]))
			case err != nil || i == 20:
				t.Fatalf("put %d before the scan: %v", i, err)
			}
			there = append(there, i)
			if at := occupied(o.Paths[0]); at > o.CapacityBytes {
				t.Fatalf("%d bytes on disk, capacity %d", at, o.CapacityBytes)
			}
			stop()
		}
		d, _ := start(t, o, nil)
		recoverAll(t, d)
		for i := 100; i < 116; i++ { // two segments' worth
			mustPut(t, d, m, i, mib-alignBytes)
		}
		if n := len(segmentFiles(t, o.Paths[0])); n != files || files < 3 {
			t.Errorf("%d segments; want the %d of before", n, files)
		}
		for _, i := range there {
			mustGet(t, d, m, i, 100_000)
		}
		recount(t, d)
	})
}

// rewrite lets fn change a record behind the tier's back.
func rewrite(t *testing.T, d *rig, k key.Key, fn func(*database.Entry)) {
	t.Helper()
	var e database.Entry
	if found, err := d.db.Entry(k, &e); err != nil || !found {
		t.Fatalf("no record: %v", err)
	}
	fn(&e)
	forge(t, d, e)
}

func ageRecord(t *testing.T, d *rig, k key.Key, used uint32) {
	t.Helper()
	rewrite(t, d, k, func(e *database.Entry) { e.Used = used })
}

func forge(t *testing.T, d *rig, e database.Entry) {
	t.Helper()
	dbKey := database.EntryKey(e.Key)
	write(t, d, func(b *metadata.Batch) { b.Set(dbKey[:], database.AppendEntry(nil, &e)) })
}

func TestForgedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		for i := range 10 {
			mustPut(t, d, m, i, 50_000)
		}
		// 20 claims the bytes of 1 and wrote before it, 21 those of 2 and wrote
		// after it, 22 to 25 point nowhere.
		for i, change := range map[int]func(*database.Entry){
			20: func(e *database.Entry) { e.Key = keyOf(20); e.Seq = 1; e.Extent.Offset += alignBytes },
			21: func(e *database.Entry) { e.Key = keyOf(21); e.Seq++ },
			22: func(e *database.Entry) { e.Key = keyOf(22); e.Extent.Segment = 99 },
			23: func(e *database.Entry) { e.Key = keyOf(23); e.Extent.Offset = 8*mib - alignBytes },
			24: func(e *database.Entry) { e.Key = keyOf(24); e.Extent.Offset = -alignBytes },
			25: func(e *database.Entry) { e.Key = keyOf(25); e.Extent.Bytes = 0; e.Size = 0 },
		} {
			rewrite(t, d, keyOf(i%20%10), func(e *database.Entry) {
				if i < 22 {
					rewriteFrom(t, d, i, e)
				}
				change(e)
			})
		}
		stop()
		d, _ = start(t, o, nil)
		got := recoverAll(t, d)
		for i := range 10 {
			if i == 2 {
				wantErr(t, get(t, d, m, i, 50_000), tier.ErrNotFound)
				continue
			}
			mustGet(t, d, m, i, 50_000)
		}
		for i := 20; i < 26; i++ {
			// 21 won, and its payload has another key's bytes and checksum: the
			// bytes are those the record names.
			if _, is := got[keyOf(i)]; is != (i == 21) {
				t.Fatalf("forged record %d recovered: %t", i, is)
			}
		}
		if lost := d.Stats().Counters["recover_lost"]; lost != 6 {
			t.Fatalf("%d records lost, want 6", lost)
		}
		checkBooks(t, d)
	})
}

// rewriteFrom makes e a copy of the record of key 1 or 2.
func rewriteFrom(t *testing.T, d *rig, i int, e *database.Entry) {
	t.Helper()
	*e = entryIn(t, d, i-19)
}

func TestResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		for range 300 {
			var in []database.Entry
			for i := range rng.IntN(40) {
				n := uint32(1 + rng.IntN(4))
				in = append(in, database.Entry{
					Key: keyOf(i), Seq: uint64(rng.IntN(1000)*100 + i), Size: n * alignBytes, // behind a header of one page
					Extent: database.Extent{Segment: 1 + uint32(rng.IntN(3)), Offset: int64(rng.IntN(40)) * alignBytes, Bytes: (n + 1) * alignBytes},
				})
			}
			all := len(in)
			newest := make(map[uint32]key.Key) // the newest in a segment is never lost
			seq := make(map[uint32]uint64)
			for _, e := range in {
				if s := e.Extent.Segment; e.Seq >= seq[s] && s < 3 && e.Extent.End() <= 30*alignBytes {
					seq[s], newest[s] = e.Seq, e.Key
				}
			}
			kept, lost := resolve(in, func(n uint32) int64 { return map[uint32]int64{1: 30 * alignBytes, 2: 30 * alignBytes}[n] })
			if len(kept)+len(lost) != all {
				t.Fatalf("%d kept and %d lost of %d", len(kept), len(lost), all)
			}
			for i, e := range kept {
				if e.Extent.Segment > 2 || e.Extent.End() > 30*alignBytes {
					t.Fatalf("kept %+v, which is out of bounds", e.Extent)
				}
				if i > 0 && kept[i-1].Extent.Segment == e.Extent.Segment && kept[i-1].Extent.End() > e.Extent.Offset {
					t.Fatalf("kept %+v and %+v", kept[i-1].Extent, e.Extent)
				}
			}
			for _, k := range newest {
				if slices.Contains(lost, k) {
					t.Fatal("the newest entry of a segment was lost")
				}
			}
		}
	})
}

func TestSmallerCapacityEvictsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		for i := range 40 {
			mustPut(t, d, m, i, mib)
		}
		for i := range 40 {
			ageRecord(t, d, keyOf(i), 1000+uint32(i))
		}
		stop()
		o.CapacityBytes = 40 * mib // 24 MiB beside the reserve
		d, _ = start(t, o, nil)
		got := recoverAll(t, d)
		if len(got) == 0 || len(got) > 24 {
			t.Fatalf("%d entries of 1 MiB in 24 MiB", len(got))
		}
		if at := occupied(o.Paths[0]); at > o.CapacityBytes {
			t.Fatalf("%d bytes on disk, capacity %d", at, o.CapacityBytes)
		}
		if _, is := got[keyOf(39)]; !is {
			t.Fatal("the youngest entry was evicted")
		}
		for i := range 40 {
			if _, is := got[keyOf(i)]; is {
				mustGet(t, d, m, i, mib)
			}
		}
	})
}

// An empty file that cannot be removed takes its room, and nothing else.
func TestOrphanThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		for i := range 5 {
			mustPut(t, d, m, i, 100_000)
		}
		stop()
		orphan := filepath.Join(o.Paths[0], segmentName(77))
		if err := os.WriteFile(orphan, make([]byte, mib), 0o600); err != nil {
			t.Fatal(err)
		}
		d, _ = start(t, o, nil)
		if err := os.Remove(orphan); err != nil { // and put something there that os.Remove refuses
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(orphan, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
		if got := recoverAll(t, d); len(got) != 5 {
			t.Errorf("%d entries were handed over, want 5", len(got))
		}
		mustGet(t, d, m, 3, 100_000)
	})
}

// Entries stored while the scan goes on are younger than those that it brings.
func TestStoredDuringScanIsYounger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		mustPut(t, d, m, 1, 100_000)
		stop()
		d, _ = start(t, o, nil)
		mustPut(t, d, m, 2, 100_000)
		recoverAll(t, d)
		if e, ok := d.ledger.Evict(); !ok || e.Key != keyOf(1) {
			t.Errorf("evicted first: %x (%t)", e.Key.Hash, ok)
		}
	})
}

// Of records that make a circle, one has no parent: a parent is only a claim. All of
// them stay.
func TestRecordsInACircle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		recoverAll(t, d)
		for i := range 3 {
			mustPut(t, d, m, i, 50_000)
		}
		for i := range 2 {
			e := entryIn(t, d, i)
			e.Parent = keyOf(1 - i).Hash
			write(t, d, func(b *metadata.Batch) { b.Rewrite(&e) })
		}
		stop()
		d, _ = start(t, o, nil)
		if got := recoverAll(t, d); len(got) != 3 {
			t.Errorf("%d entries, want 3", len(got))
		}
		recount(t, d)
		for i := range 3 {
			mustGet(t, d, m, i, 50_000)
		}
		mustPut(t, d, m, 3, 50_000)
	})
}

// Entries that overlap although they were resolved cost the later one, not the daemon.
func TestOverlapAfterResolve(t *testing.T) {
	t.Cleanup(base.SurviveBroken())
	v := &volume{list: []*segment{{number: 1, size: 8 * alignBytes}}}
	v.list[0].volume = v
	r := recovery{t: &instance{segments: &segments{volumes: []*volume{v}}}}
	at := func(name byte, off int64) database.Entry {
		return database.Entry{Key: key.Key{Hash: [16]byte{name}}, Extent: database.Extent{Segment: 1, Offset: off * alignBytes, Bytes: 2 * alignBytes}}
	}
	before := base.BrokenCount()
	orphans, lost := r.reserve([]database.Entry{at(1, 0), at(2, 1), at(3, 2), at(4, 7)})
	if len(orphans) != 0 || len(lost) != 2 || lost[0].Hash[0] != 2 || lost[1].Hash[0] != 4 || base.BrokenCount() != before+2 {
		t.Errorf("orphans %v, lost %v, %d counted", orphans, lost, base.BrokenCount()-before)
	}
	if used := v.list[0].free.UsedBytes(); used != 4*alignBytes {
		t.Errorf("%d bytes are in use", used)
	}
}

// The record of an entry that overlaps another's goes with it: the next start would meet it
// again, and a deletion pass over it.
func TestRecordOfAnOverlap(t *testing.T) {
	t.Cleanup(base.SurviveBroken())
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		for i := range 3 {
			mustPut(t, d, m, i, 20_000)
		}
		stop()
		d, _ = start(t, o, nil)
		r := &recovery{t: d.instance}
		if err := r.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		wrong := r.entries[1].Key
		r.entries[1].Extent = r.entries[0].Extent
		if err := r.keep(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.end(t.Context(), func([]tier.Record) {})
		var e database.Entry
		if found, err := d.db.Entry(wrong, &e); found || err != nil {
			t.Errorf("its record is there: %v, error %v", found, err)
		}
		wantErr(t, get(t, d, m, int(binary.LittleEndian.Uint64(wrong.Hash[:]))-1, 20_000), tier.ErrNotFound)
		if n := d.Stats().Entries; n != 2 {
			t.Errorf("%d entries are there", n)
		}
	})
}
