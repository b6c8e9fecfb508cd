package disk

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// unsyncable is a folder whose files cannot be synced when the test says so.
type unsyncable struct {
	blockio.Folder

	mu      sync.Mutex
	fail    error         // of the next sync
	hang    chan struct{} // every sync waits for it
	waiting chan struct{} // told of each that does
}

type unsyncableFile struct {
	blockio.File
	f *unsyncable
}

func (f *unsyncable) Create(path string, size int64) (blockio.File, error) {
	g, err := f.Folder.Create(path, size)
	return unsyncableFile{g, f}, err
}

// failOnce has one sync fail, as the kernel tells of a page once.
func (f *unsyncable) failOnce() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = syscall.EIO
}

func (f unsyncableFile) Sync() error {
	f.f.mu.Lock()
	hang := f.f.hang
	f.f.mu.Unlock()
	if hang != nil {
		f.f.waiting <- struct{}{}
		<-hang
	}
	f.f.mu.Lock()
	defer f.f.mu.Unlock()
	err := f.f.fail
	f.f.fail = nil
	if err == nil {
		err = f.File.Sync()
	}
	return err
}

// hangUp has every sync hang until f.hang is closed; n of them tell waiting.
func (f *unsyncable) hangUp(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hang, f.waiting = make(chan struct{}), make(chan struct{}, n)
}

func newUnsyncable(t *testing.T, dir string) *unsyncable {
	t.Helper()
	own, err := blockio.NewFolder(folderAt(t, dir), true)
	if err != nil {
		t.Fatal(err)
	}
	return &unsyncable{Folder: own}
}

func startUnsyncable(t *testing.T) (*rig, *unsyncable, Options) {
	t.Helper()
	o := testOptions(tiertest.Folder(t))
	o.Buffered = true
	f := newUnsyncable(t, o.Paths[0])
	d, _ := start(t, o, f)
	return d, f, o
}

// wantDropped wants that a Sync has dropped ks, and has synced the rest.
func wantDropped(t *testing.T, err error, ks ...key.Key) {
	t.Helper()
	var dropped *tier.DroppedError
	if !errors.As(err, &dropped) || dropped.Err != nil || !slices.Equal(dropped.Keys, ks) {
		t.Fatalf("%v; want that %v were dropped, and the rest synced", err, ks)
	}
}

// A sync of a segment that failed is not made good by the next: entries written
// since the last good one go, those written before stay.
func TestUnsyncedIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, f, o := startUnsyncable(t)
		m := newMemory(t)
		mustPut(t, d, m, 1, 50_000)
		mustPut(t, d, m, 2, 60_000)
		if err := d.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		deleted := entryIn(t, d, 2)
		image, err := os.OpenFile(segmentFiles(t, o.Paths[0])[0], os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer image.Close() //nolint:errcheck
		header := make([]byte, database.HeaderBytes)
		if _, err := image.ReadAt(header, deleted.Extent.Offset); err != nil {
			t.Fatal(err)
		}
		mustPut(t, d, m, 3, 70_000)
		if err := d.Delete(t.Context(), []key.Key{keyOf(2)}); err != nil {
			t.Fatal(err)
		}
		f.failOnce()
		wantErr(t, d.Sync(t.Context()), syscall.EIO)
		if _, err := image.WriteAt(header, deleted.Extent.Offset); err != nil { // the tombstone is not on the device
			t.Fatal(err)
		}
		mustPut(t, d, m, 4, 80_000)
		wantDropped(t, d.Sync(t.Context()), keyOf(3))
		if err := d.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustGet(t, d, m, 1, 50_000)
		mustGet(t, d, m, 4, 80_000)
		if d.Has(keyOf(2)) || d.Has(keyOf(3)) {
			t.Error("what may not be on the device was kept through a sync that succeeded")
		}
		if _, err := image.ReadAt(header, deleted.Extent.Offset); err != nil {
			t.Fatal(err)
		}
		var h database.Header
		if !d.seal.Open(header, deleted.Extent.Segment, deleted.Extent.Offset, &h) || !h.Free && h.Key == keyOf(2) {
			t.Errorf("the header of what was deleted is there again: %+v", h)
		}
		recount(t, d)
	})
}

// A sync that has dropped nothing does not succeed while a segment is unverified,
// and a tier that is closed then does not say that its headers are in order.
func TestUnverifiedOutlivesASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, f, o := startUnsyncable(t)
		m := newMemory(t)
		recoverAll(t, d) // else its end says nothing of headers
		mustPut(t, d, m, 1, 50_000)
		mustPut(t, d, m, 2, 60_000)
		if err := d.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := d.Delete(t.Context(), []key.Key{keyOf(2)}); err != nil {
			t.Fatal(err)
		}
		f.failOnce()
		wantErr(t, d.Sync(t.Context()), syscall.EIO)
		wantErr(t, newSync(d.instance).sync(t.Context()), errUnverified)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if clean, err := folderAt(t, o.Paths[0]).Exists(cleanName); clean || err != nil {
			t.Errorf("the tier says that all headers are written: %v", err)
		}
	})
}

// Unverified entries are dropped when the Puts that were under way have ended: one
// that is in the database and not in the ledger yet would stay.
func TestDropWaitsForPuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, f, _ := startUnsyncable(t)
		m := newMemory(t)
		mustPut(t, d, m, 1, 50_000)
		f.failOnce()
		wantErr(t, d.Sync(t.Context()), syscall.EIO)
		e := entryOf(t, m, 2, 60_000)
		defer e.Block.Release()
		id, _, err := d.fills.begin(e)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		wantErr(t, d.Sync(ctx), context.DeadlineExceeded)
		d.fills.end(e.Key, func() { d.ledger.Abort(id) })
		wantDropped(t, d.Sync(t.Context()), keyOf(1))
		if d.Has(keyOf(1)) {
			t.Error("what may not be on the device is there")
		}
	})
}

// The file of a segment that is removed during a sync cannot be synced, and
// need not be.
func TestSyncOfARemovedSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, f, _ := startUnsyncable(t)
		m := newMemory(t)
		mustPut(t, d, m, 1, 50_000)
		if err := d.Delete(t.Context(), []key.Key{keyOf(1)}); err != nil {
			t.Fatal(err)
		}
		f.hangUp(1)
		synced := make(chan error, 1)
		go func() { synced <- d.Sync(t.Context()) }()
		select {
		case <-f.waiting:
		case err := <-synced:
			t.Fatalf("nothing was synced: %v", err)
		}
		for range 2 { // empty, and empty still
			if err := d.segments.removeIdle(d.volumes[0]); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(d.segments.all()); n != 0 {
			t.Errorf("%d segments are left", n)
		}
		close(f.hang)
		if err := <-synced; err != nil {
			t.Error(err)
		}
	})
}

// A Sync that waits for another one, which hangs, ends with the tier.
func TestSyncBehindAHangEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		o.Buffered = true
		f := newUnsyncable(t, o.Paths[0])
		d, err := openRig(o, f)
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- d.Run(context.Background()) }()
		m := newMemory(t)
		mustPut(t, d, m, 1, 50_000)
		f.hangUp(1)
		errs := make(chan error, 2)
		go func() { errs <- d.Sync(t.Context()) }()
		<-f.waiting
		asked := make(chan struct{}, 100)
		go func() { errs <- d.Sync(askedContext{t.Context(), asked}) }()
		<-asked
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		wantErr(t, <-ran, tier.ErrHung)
		wantErr(t, <-errs, tier.ErrClosed)
		wantErr(t, <-errs, tier.ErrClosed)
		close(f.hang)
		await(t, "the sync does not end", func() bool { return d.volumes[0].dev.InKernel() == 0 })
	})
}

// A Put that is on its way through a sync that fails fails too.
func TestUnsyncedPutFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, f, _ := startUnsyncable(t)
		m := newMemory(t)
		mustPut(t, d, m, 1, 50_000)
		begun, blocked, put2 := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		w := &writes{func(*metadata.Batch) { close(begun); <-blocked }, make(chan error, 1)}
		if err := d.commits.Add(w); err != nil {
			t.Fatal(err)
		}
		<-begun
		go func() { put2 <- put(t, d, m, 2, 60_000) }()
		await(t, "the payload is not written", func() bool { return d.commits.Queued() == 1 })
		f.failOnce()
		wantErr(t, d.Sync(t.Context()), syscall.EIO)
		close(blocked)
		wantErr(t, <-put2, errUnverified)
		wantDropped(t, d.Sync(t.Context()), keyOf(1))
		if d.Has(keyOf(2)) {
			t.Error("what may not be on the device is there")
		}
		mustPut(t, d, m, 2, 60_000)
		mustGet(t, d, m, 2, 60_000)
		recount(t, d)
	})
}

// Of two calls of Sync at once both fail when one is told of a failure.
func TestSyncsFailTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, f, _ := startUnsyncable(t)
		m := newMemory(t)
		mustPut(t, d, m, 1, 50_000)
		f.failOnce()
		f.hangUp(2)
		errs := make(chan error, 2)
		go func() { errs <- d.Sync(t.Context()) }()
		<-f.waiting
		asked := make(chan struct{}, 100)
		go func() { errs <- d.Sync(askedContext{t.Context(), asked}) }()
		<-asked
		close(f.hang)
		wantErr(t, <-errs, errUnverified)
		wantErr(t, <-errs, errUnverified)
		wantDropped(t, d.Sync(t.Context()), keyOf(1))
		if d.Has(keyOf(1)) {
			t.Error("what may not be on the device is there")
		}
	})
}

// askedContext tells that its end is waited for.
type askedContext struct {
	context.Context
	asked chan struct{}
}

func (c askedContext) Done() <-chan struct{} {
	c.asked <- struct{}{}
	return c.Context.Done()
}
