package disk

import (
	"context"
	"flag"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

var manyEntries = flag.Int("many-entries", 5_000, "how many entries TestRecoverMany brings back; 1000000 for the real thing, which takes 5 GiB of disk")

// Many entries come back while the tier serves: what the scan has not come to
// is found in the database, new payloads are stored, and how far it is can be
// seen.
func TestRecoverMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := *manyEntries
		o := testOptions(tiertest.Folder(t))
		o.CapacityBytes, o.MetaReserveBytes, o.SegmentBytes = 96*mib, 32*mib, 8*mib
		if n > 5_000 {
			o.CapacityBytes, o.MetaReserveBytes, o.SegmentBytes = 64<<30, 512*mib, 1<<30
			o.Paths = []string{t.TempDir()}
		}
		forgeMany(t, o, n)
		m := newMemory(t)
		d, _ := start(t, o, nil)
		var got atomic.Int64
		done := make(chan error, 1)
		go func() {
			done <- d.Recover(context.Background(), func(rs []tier.Record) { got.Add(int64(len(rs))) })
		}()
		asked, seen := 0, uint64(0)
		var err error
		for running := true; running; asked++ {
			select {
			case err = <-done:
				running = false
			default:
			}
			have := make([]bool, 2)
			ks := []key.Key{manyKey(asked * 7919 % n), keyOf(1 << 30)}
			if err := d.Contains(context.Background(), ks, have); err != nil || !have[0] || have[1] {
				t.Fatalf("contains: %v %v; %+v", have, err, d.Stats().Counters)
			}
			if asked%10 == 0 && asked < 1000 {
				mustPut(t, d, m, 1<<22+asked, 10_000)
				mustGet(t, d, m, 1<<22+asked, 10_000)
			}
			c := d.Stats().Counters
			if at := c["recover_scanned"]; at < seen {
				t.Fatalf("%d records scanned, and %d before", at, seen)
			} else {
				seen = at
			}
		}
		if err != nil || got.Load() != int64(n) {
			t.Fatalf("%d of %d entries are back: %v", got.Load(), n, err)
		}
		t.Logf("%d entries; %d times asked meanwhile", n, asked)
		checkBooks(t, d)
	})
}

// manyKey spreads keys over the whole range.
func manyKey(i int) key.Key { return keyOf(int(uint32(i) * 2654435761)) }

// forgeMany writes the records of n entries of 4 KiB in chains of 100, and the
// segments for them, but no payload.
func forgeMany(t *testing.T, o Options, n int) {
	t.Helper()
	d, stop := start(t, o, nil)
	defer stop()
	perSegment := int(o.SegmentBytes / extentBytes(manyBytes))
	write(t, d, func(b *metadata.Batch) { forgeRecords(b, n, perSegment) })
	// At the end: empty segments are removed after a while.
	for range (n + perSegment - 1) / perSegment {
		if err := d.segments.grow(d.volumes[0], extentBytes(manyBytes), func(int64) int64 { return o.SegmentBytes }); err != nil {
			t.Fatal(err)
		}
	}
}

// manyBytes is the size of each payload.
const manyBytes = 4096

func forgeRecords(b *metadata.Batch, n, perSegment int) {
	each := extentBytes(manyBytes)
	for i := range n {
		e := database.Entry{
			Key: manyKey(i), Size: manyBytes, Seq: uint64(i), Depth: uint32(i % 100), Used: uint32(i / 1000),
			Extent: database.Extent{Segment: uint32(1 + i/perSegment), Offset: int64(i%perSegment) * each, Bytes: uint32(each)},
		}
		if e.Depth > 0 {
			e.Parent = manyKey(i - 1).Hash
		}
		k := database.EntryKey(e.Key)
		b.Set(k[:], database.AppendEntry(nil, &e))
	}
}
