package store_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// doubtful is a disk whose syncs fail when the test says so. The next one drops
// what was put since the last good one, as the disk tier does.
type doubtful struct {
	*tiertest.Memory

	mu      sync.Mutex
	fail    int           // so many syncs from now on fail
	since   []key.Key     // puts since the last good sync
	doubted []key.Key     // to be dropped
	gate    chan struct{} // not nil: a sync waits for it once it has dropped
}

func newDoubtful() *doubtful { return &doubtful{Memory: tiertest.NewMemory("disk", 64*mib)} }

func (d *doubtful) Put(ctx context.Context, e tier.Entry) error {
	err := d.Memory.Put(ctx, e)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.since = append(d.since, e.Key)
	}
	return err
}

func (d *doubtful) Sync(ctx context.Context) error {
	dropped, gate, err := d.next()
	if err != nil {
		return err
	}
	if len(dropped) == 0 {
		return d.Memory.Sync(ctx)
	}
	if err := d.Delete(ctx, dropped); err != nil {
		return err
	}
	if gate != nil {
		<-gate
	}
	return &tier.DroppedError{Keys: dropped, Err: d.Memory.Sync(ctx)}
}

// next is what a sync is to drop, or its error.
func (d *doubtful) next() (dropped []key.Key, gate chan struct{}, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail > 0 {
		d.fail--
		d.doubted = append(d.doubted, d.since...)
		err = errIO
	} else {
		dropped, d.doubted = d.doubted, nil
	}
	d.since = nil
	return dropped, d.gate, err
}

// A flush that comes after one whose sync failed writes again what the disk has
// dropped for that, before it says that all is durable.
func TestFlushWritesAgainWhatWasDropped(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDoubtful()
				d.fail = 1
				r := newRig(t, options{disk: d.Memory, planner: d, mode: mode})
				c := r.putChain(1, 4)
				if err := r.Writers.Flush(t.Context(), true); !errors.Is(err, errIO) {
					t.Fatalf("the first flush: %v", err)
				}
				for i := range c.Len() {
					r.wantOnDisk(c, i)
				}
				if err := r.Writers.Flush(t.Context(), true); err != nil {
					t.Fatalf("the second flush: %v", err)
				}
				for i := range c.Len() {
					r.wantOnDisk(c, i)
				}
				if len(d.since) > 0 || len(d.doubted) > 0 {
					t.Errorf("%d chunks are not synced, %d of them doubted", len(d.since)+len(d.doubted), len(d.doubted))
				}
				if reason, v := r.Writers.Unflushed(writeback.Volume{}); v.Chunks > 0 {
					t.Errorf("%v of them are said to be in DRAM only: %s", v, reason)
				}
				r.wantWritten(8, nil)
			})
		})
	}
}

// Chunks that the disk has dropped, and DRAM has not, are lost, and counted as
// that; the index does not know them any more.
func TestDroppedAndNotInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubtful()
		d.fail = 1
		r := newRig(t, options{disk: d.Memory, planner: d})
		c := r.putChain(1, 4)
		if err := r.Writers.Flush(t.Context(), true); !errors.Is(err, errIO) {
			t.Fatalf("the first flush: %v", err)
		}
		if err := r.hot.Delete(t.Context(), tiertest.Keys(c, 2, 4)); err != nil {
			t.Fatal(err)
		}
		for _, k := range tiertest.Keys(c, 2, 4) {
			r.Settle(tier.CPU, k)
		}
		if err := r.Writers.Flush(t.Context(), true); err != nil {
			t.Fatalf("the second flush: %v", err)
		}
		r.wantIn(c, 2, 0)
		for i := range 2 {
			r.wantOnDisk(c, i)
		}
		if n := r.Writers.Written()[tier.Disk].Dropped[explain.Lost].Chunks; n != 2 {
			t.Errorf("%d chunks are counted as lost; want 2", n)
		}
	})
}

// A flush does not say that all is durable while another one has seen the disk
// drop chunks that are not written again yet.
func TestFlushesBesideADrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubtful()
		d.fail, d.gate = 1, make(chan struct{})
		r := newRig(t, options{disk: d.Memory, planner: d})
		c := r.putChain(1, 4)
		if err := r.Writers.Flush(t.Context(), true); !errors.Is(err, errIO) {
			t.Fatalf("the first flush: %v", err)
		}
		var flushes sync.WaitGroup
		ended := 0
		var mu sync.Mutex
		for range 3 {
			flushes.Go(func() {
				err := r.Writers.Flush(t.Context(), true)
				mu.Lock()
				defer mu.Unlock()
				ended++
				if err != nil {
					t.Errorf("flush: %v", err)
				}
				for i := range c.Len() {
					r.wantOnDisk(c, i)
				}
			})
		}
		synctest.Wait()
		mu.Lock()
		if ended > 0 {
			t.Errorf("%d flushes have ended while dropped chunks are on no disk", ended)
		}
		mu.Unlock()
		close(d.gate)
		flushes.Wait()
		if len(d.since) > 0 {
			t.Errorf("%d chunks are not synced", len(d.since))
		}
	})
}

// What SyncDisk finds dropped is written again too. It is no error of SyncDisk:
// deletions that it is to make durable are.
func TestSyncDiskBesideADrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubtful()
		d.fail = 1
		r := newRig(t, options{disk: d.Memory, planner: d})
		c := r.putChain(1, 4)
		r.flush()
		if err := r.Writers.SyncDisk(t.Context()); !errors.Is(err, errIO) {
			t.Fatalf("the first sync: %v", err)
		}
		if err := r.Writers.SyncDisk(t.Context()); err != nil {
			t.Fatalf("the second sync: %v", err)
		}
		synctest.Wait()
		for i := range c.Len() {
			r.wantOnDisk(c, i)
		}
	})
}

// A drop does not hide that the rest could not be synced either.
func TestDropThatFails(t *testing.T) {
	err := error(&tier.DroppedError{Keys: make([]key.Key, 3), Err: errIO})
	if !errors.Is(err, errIO) {
		t.Errorf("%v does not say why", err)
	}
	synctest.Test(t, func(t *testing.T) {
		d := newDoubtful()
		r := newRig(t, options{disk: d.Memory, planner: failingAfter{d}})
		c := r.putChain(1, 2)
		d.fail = 1
		r.flush()
		for range 2 {
			if err := r.Writers.Flush(t.Context(), true); !errors.Is(err, errIO) {
				t.Errorf("flush: %v; want %v", err, errIO)
			}
		}
		synctest.Wait()
		for i := range c.Len() {
			r.wantOnDisk(c, i) // written again all the same
		}
	})
}

// failingAfter is a disk whose syncs fail when they have dropped.
type failingAfter struct{ *doubtful }

func (f failingAfter) Sync(ctx context.Context) error {
	err := f.doubtful.Sync(ctx)
	var dropped *tier.DroppedError
	if errors.As(err, &dropped) {
		dropped.Err = errIO
	}
	return err
}

// reopening is a disk that is lost, and opened again.
type reopening struct {
	*tiertest.Memory
	opened chan struct{}
	times  *atomic.Uint64
}

func newReopening() reopening {
	d := reopening{tiertest.NewMemory("disk", 64*mib), make(chan struct{}), new(atomic.Uint64)}
	d.times.Store(1)
	return d
}

func (d reopening) Reopened() <-chan struct{} { return d.opened }
func (d reopening) Openings() uint64          { return d.times.Load() }

// Chunks that a disk has lost between two openings are written to it again.
func TestLostWhileClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newReopening()
		r := newRig(t, options{disk: d.Memory, planner: d})
		c := r.putChain(1, 4)
		r.flush()
		if err := d.Delete(t.Context(), tiertest.Keys(c, 1, 4)); err != nil {
			t.Fatal(err)
		}
		if err := r.hot.Delete(t.Context(), tiertest.Keys(c, 3, 4)); err != nil {
			t.Fatal(err)
		}
		r.Settle(tier.CPU, c.Key(3))
		d.opened <- struct{}{}
		synctest.Wait()
		r.flush()
		for i := range 3 {
			r.wantOnDisk(c, i)
		}
		if at := r.Where(c.Key(3)); at != 0 {
			t.Errorf("chunk 3 is known in %b, and is in no tier", at)
		}
		if n := r.Writers.Written()[tier.Disk].Dropped[explain.Lost].Chunks; n != 1 {
			t.Errorf("%d chunks are counted as lost; want 1", n)
		}
	})
}

// Of a disk that was opened again no durable flush says that what was stored before
// is there, until it is known what it has lost.
func TestFlushAfterReopening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newReopening()
		r := newRig(t, options{disk: d.Memory, planner: d})
		c := r.putChain(1, 4)
		if err := r.Writers.Flush(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if err := d.Delete(t.Context(), tiertest.Keys(c, 1, 4)); err != nil {
			t.Fatal(err)
		}
		d.times.Add(1) // the signal comes later
		if err := r.Writers.Flush(t.Context(), true); !errors.Is(err, tier.ErrOff) {
			t.Errorf("a flush before the scan: %v", err)
		}
		d.opened <- struct{}{}
		synctest.Wait()
		if err := r.Writers.Flush(t.Context(), true); err != nil {
			t.Errorf("a flush behind the scan: %v", err)
		}
		for i := range 4 {
			r.wantOnDisk(c, i)
		}
	})
}

// scanned is a reopening disk that is scanned while it syncs, behind what that syncs.
type scanned struct {
	reopening
	unsynced *atomic.Int64 // puts since the last sync began
	late     *atomic.Bool
}

func (d scanned) Put(ctx context.Context, e tier.Entry) error {
	d.unsynced.Add(1)
	return d.Memory.Put(ctx, e)
}

func (d scanned) Sync(ctx context.Context) error {
	d.unsynced.Store(0)
	err := d.Memory.Sync(ctx)
	if d.late.CompareAndSwap(true, false) {
		d.opened <- struct{}{}
		time.Sleep(time.Second) // of the test's clock: until the scan has ended
	}
	return err
}

// A flush syncs too what a scan beside it has found lost.
func TestFlushBesideScan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := scanned{newReopening(), new(atomic.Int64), new(atomic.Bool)}
		r := newRig(t, options{disk: d.Memory, planner: d})
		c := r.putChain(1, 4)
		if err := r.Writers.Flush(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if err := d.Delete(t.Context(), tiertest.Keys(c, 1, 4)); err != nil {
			t.Fatal(err)
		}
		d.times.Add(1)
		d.late.Store(true)
		if err := r.Writers.Flush(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			r.wantOnDisk(c, i)
		}
		if n := d.unsynced.Load(); n > 0 {
			t.Errorf("%d chunks that were written again are not synced", n)
		}
	})
}
