package disk

import (
	"context"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

func TestScrub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		size := func(n int) int { return 1 + n*300_007%(3*mib) } // 0 lies inline
		var total uint64
		for i := range 20 {
			mustPut(t, d, m, i, size(i))
			total += uint64(size(i))
		}
		ctx := context.Background()
		never := func(k key.Key) { t.Errorf("%x is wrong, and nothing was done to it", k.Hash) }
		if s, err := d.Scrub(ctx, 0, never); err != nil || s != (tier.Scrubbed{Chunks: 20, Bytes: total}) {
			t.Fatalf("scrubbed %+v: %v", s, err)
		}

		e := entryIn(t, d, 7)
		path := d.segments.find(e.Extent.Segment).path
		dbKey := database.PayloadKey(keyOf(0))
		write(t, d, func(b *metadata.Batch) { b.Set(dbKey[:], []byte("x")) })
		stop()
		flip(t, path, e.Extent.Offset+int64(size(7))-1)
		d, _ = start(t, o, nil)
		recoverAll(t, d)
		gone := make(map[key.Key]bool)
		s, err := d.Scrub(ctx, 0, func(k key.Key) { gone[k] = true })
		if err != nil || s != (tier.Scrubbed{Chunks: 20, Bytes: total, Wrong: 2}) || len(gone) != 2 || !gone[keyOf(0)] || !gone[keyOf(7)] {
			t.Fatalf("scrubbed %+v, gone %v: %v", s, gone, err)
		}
		for i := range 20 {
			if d.Has(keyOf(i)) == gone[keyOf(i)] {
				t.Errorf("key %d is there: %t", i, d.Has(keyOf(i)))
			}
		}
		if c := d.Stats(); c.Corrupt != 2 || c.Counters["corrupt_scrub"] != 2 {
			t.Errorf("stats %+v", c)
		}
		checkBooks(t, d)
	})
}

// Bytes that come wrong once are read again; what cannot be read stays.
func TestScrubReadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		f := newFaulty(t, o.Paths[0])
		d, _ := start(t, o, f)
		m := newMemory(t)
		mustPut(t, d, m, 1, 100_000)
		f.set(syscall.EIO, nil)
		never := func(k key.Key) { t.Errorf("%x was deleted", k.Hash) }
		s, err := d.Scrub(context.Background(), 0, never)
		if err != nil || s != (tier.Scrubbed{Failed: 1}) {
			t.Fatalf("scrubbed %+v: %v", s, err)
		}
		f.set(nil, nil)
		f.garble.Store(true) // one read
		s, err = d.Scrub(context.Background(), 0, never)
		if err != nil || s != (tier.Scrubbed{Chunks: 1, Bytes: 100_000}) {
			t.Fatalf("scrubbed %+v: %v", s, err)
		}
		f.garble.Store(true)
		mustGet(t, d, m, 1, 100_000)
	})
}

func TestScrubEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		f := newFaulty(t, o.Paths[0])
		d, _ := start(t, o, f)
		m := newMemory(t)
		mustPut(t, d, m, 1, 100_000)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := d.Scrub(ctx, 0, nil)
		wantErr(t, err, context.Canceled)
		hang := make(chan struct{})
		defer close(hang)
		f.set(nil, hang)
		_, err = d.Scrub(context.Background(), 0, nil)
		wantErr(t, err, os.ErrDeadlineExceeded)
	})
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pace{perSecond: mib}
		begun := time.Now()
		for range 10 {
			if err := p.wait(t.Context(), mib); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took != 10*time.Second {
			t.Errorf("10 MiB at 1 MiB a second took %v", took)
		}
		time.Sleep(time.Hour) // is not made up for
		begun = time.Now()
		if err := p.wait(t.Context(), mib); err != nil || time.Since(begun) != time.Second {
			t.Errorf("after a pause: %v, %v", time.Since(begun), err)
		}
	})
}
