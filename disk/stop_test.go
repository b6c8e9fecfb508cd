package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// A sync that takes longer than the I/O timeout while nothing else ends is
// slow, not hung.
func TestSlowSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		f := newFaulty(t, o.Paths[0])
		d, _ := start(t, o, f)
		m := newMemory(t)
		mustPut(t, d, m, 1, 100_000)
		hang := make(chan struct{})
		f.set(nil, hang)
		time.AfterFunc(10*o.IOTimeout, func() { close(hang) })
		if err := d.Sync(context.Background()); err != nil {
			t.Fatal(err)
		}

		f.set(nil, nil)
		mustPut(t, d, m, 2, 100_000)
		hang = make(chan struct{})
		f.set(nil, hang)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		wantErr(t, d.Sync(ctx), context.DeadlineExceeded)
		close(hang)
		synctest.Wait()
		if n := d.metaDev.InKernel(); n > 0 {
			t.Errorf("%d requests are left", n)
		}
	})
}

// A call that hangs at the end keeps the tier from an orderly end, and no
// other process from the folder: the database is in a process that has ended.
func TestCloseWhileACallHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		d, err := openRig(o, nil)
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- d.Run(context.Background()) }()
		hang, late := make(chan struct{}), make(chan error)
		go func() {
			_ = d.call(context.Background(), d.metaDev, func() error {
				<-hang
				late <- d.db.Sync()
				return nil
			}, nil)
		}()
		synctest.Wait()
		if d.metaDev.InKernel() == 0 {
			t.Fatal("nothing is called")
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		wantErr(t, <-ran, tier.ErrHung)
		other, err := openRig(o)
		if err != nil {
			t.Fatal(err)
		}
		close(hang)
		if err := <-late; err == nil {
			t.Error("a database that is closed answers")
		}
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		begun := time.Now()
		wantErr(t, within(time.Second, func() error { <-release; return nil }), tier.ErrHung)
		if took := time.Since(begun); took != time.Second {
			t.Errorf("gave up after %v", took)
		}
		close(release)
		no := errors.New("no")
		wantErr(t, within(time.Second, func() error { return no }), no)
	})
}

// A record of a newer program is passed over and counted: it keeps neither
// the scan from ending nor the tier from evicting.
func TestNewerRecordIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		for i := range 40 {
			mustPut(t, d, m, i, mib)
		}
		e := entryIn(t, d, 3)
		dbKey := database.EntryKey(keyOf(3))
		newer := database.AppendEntry(nil, &e)
		newer[0] = database.EntryVersion + 1
		body := newer[:database.EntryBytes-8]
		newer = binary.LittleEndian.AppendUint64(body, xxhash.Sum64(slices.Concat(dbKey[:], body)))
		write(t, d, func(b *metadata.Batch) { b.Set(dbKey[:], newer) })
		stop()
		d, _ = start(t, o, nil)
		if got := recoverAll(t, d); len(got) != 39 {
			t.Fatalf("recovered %d of 40", len(got))
		}
		if c := d.Stats().Counters; c["recover_newer"] != 1 || c["recover_lost"] != 0 {
			t.Errorf("counters %v", c)
		}
		wantErr(t, get(t, d, m, 3, mib), tier.ErrNotFound)
		out, err := d.Trim(context.Background(), 20*mib, nil)
		if err != nil || len(out) == 0 {
			t.Fatalf("evicted %d: %v", len(out), err)
		}
		mustPut(t, d, m, 3, mib)
		mustGet(t, d, m, 3, mib)
		checkBooks(t, d)
	})
}

// TestSurveyOfStoppedDevice: a tier that ends in the midst of a survey ends it with an
// error: of a device that is stopped no piece is awaited.
func TestSurveyOfStoppedDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := start(t, testOptions(tiertest.Folder(t)), nil)
		mustPut(t, d, newMemory(t), 1, 100_000)
		seg := d.segments.all()[0]
		seg.volume.dev.Stop()
		w := window{ctx: t.Context(), t: d.instance, seg: seg}
		defer w.end()
		_, err := w.page(0, seg.size)
		wantErr(t, err, tier.ErrClosed)
	})
}
