package store_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// A flush that began before a chunk was evicted waits for it on its way down.
func TestFlushWaitsForVictims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(t, options{
			workers: 1,
			limits:  ledger.Limits{Unwritten: 4 * size},
			hook:    tierfault.On(tierfault.Put, tierfault.Fault{Until: gate}),
		})
		r.putChain(1, 1)
		synctest.Wait() // in the disk's hands
		c := r.putChain(2, 2)
		var flushed atomic.Bool
		go func() {
			r.flush()
			flushed.Store(true)
			for i := range 2 {
				r.wantOnDisk(c, i)
			}
		}()
		synctest.Wait()
		r.evict()
		synctest.Wait()
		if flushed.Load() {
			t.Error("flush returned before anything was written")
		}
		close(gate)
		synctest.Wait()
		if !flushed.Load() {
			t.Error("flush did not return")
		}
		r.wantWritten(3, nil)
	})
}

// A dropped chunk that is still in DRAM is not on disk, and a flush that comes
// later has to say so.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := tiertest.Chain(1, 3)
		var broken atomic.Bool
		broken.Store(true)
		r := newRig(t, options{hook: func(call tierfault.Call) tierfault.Fault {
			if call.Op == tierfault.Put && call.Keys[0] != c.Key(0) && broken.Load() {
				return tierfault.Fault{Err: errIO}
			}
			return tierfault.Fault{}
		}})
		r.put(c, 0, 3, size)
		synctest.Wait() // two have failed once; a chunk that fails three times is offered no more
		r.flush()
		for told, want := range map[uint64]uint64{0: 2, 1: 1, 2: 0, 3: 0} {
			reason, v := r.Writers.Unflushed(writeback.Volume{Chunks: told, Bytes: told * size})
			if v != (writeback.Volume{Chunks: want, Bytes: want * size}) || want > 0 && reason != "dropped_before" {
				t.Errorf("where %d were told of: %q, %v; want %d chunks", told, reason, v, want)
			}
		}
		broken.Store(false)
		r.flush()
		if reason, v := r.Writers.Unflushed(writeback.Volume{}); v.Chunks != 0 {
			t.Errorf("with everything on disk: %q, %v", reason, v)
		}
	})
}

// Chunks that were cleared below and are still in DRAM are not on disk, and no flush
// writes them.
func TestCleared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.putChain(1, 3)
		want := func(when string, n uint64) {
			t.Helper()
			r.flush()
			if v := r.Remover.Cleared(); v != (writeback.Volume{Chunks: n, Bytes: n * size}) {
				t.Errorf("%s: %v are in DRAM only; want %d chunks", when, v, n)
			}
		}
		clearDisk := func() {
			t.Helper()
			if _, err := r.Remover.Clear(t.Context(), tier.Of(tier.Disk)); err != nil {
				t.Fatal(err)
			}
		}
		want("written", 0)
		clearDisk()
		want("cleared", 3)
		r.put(tiertest.Chain(2, 2), 0, 2, size)
		want("others written", 3)
		r.evict()
		r.wantIn(c, 0, 0)
		want("evicted", 0)
		r.putChain(3, 1)
		want("written again", 0)
		clearDisk()
		want("cleared again", 1)
	})
}

// Chunks that were cleared in a tier that evicts nothing are absent, wherever else
// they are, and no flush writes them there again.
func TestClearedFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{remote: struct{ tier.Tier }{tiertest.NewMemory("remote", 64*mib)}}) // without bounds
		c := r.putChain(1, 3)
		want := func(when string, n uint64) {
			t.Helper()
			r.flush()
			if v := r.Remover.Cleared(); v != (writeback.Volume{Chunks: n, Bytes: n * size}) {
				t.Errorf("%s: %v are not in the remote tier; want %d chunks", when, v, n)
			}
		}
		want("written", 0)
		if n, err := r.Remover.Clear(t.Context(), tier.Of(tier.Remote)); n != 3 || err != nil {
			t.Fatalf("cleared %d: %v", n, err)
		}
		want("cleared", 3)
		r.put(tiertest.Chain(2, 2), 0, 2, size)
		want("others written", 3)
		r.evict()
		r.wantIn(c, 0, 3)
		want("on disk only", 3)
		if _, err := r.Remover.Delete(t.Context(), []key.Key{c.Key(2)}); err != nil {
			t.Fatal(err)
		}
		want("one deleted", 2)
		if _, err := r.Remover.Clear(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		want("cleared everywhere else", 0)
	})
}

func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{hook: tierfault.On(tierfault.Put, tierfault.Fault{Delay: time.Minute})})
		r.putChain(1, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Writers.Flush(ctx, false); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a flush that may not wait: %v", err)
		}
		if err := r.Writers.Flush(t.Context(), true); err != nil {
			t.Error(err)
		}
		r.wantWritten(1, nil)
		if n := r.disk.Syncs(); n != 1 {
			t.Errorf("%d syncs by a durable flush; want 1", n)
		}
	})
}

// When Run ends, the chunks that it could not write are let go and counted.
func TestStopWithWorkLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{hook: tierfault.On(tierfault.Put, tierfault.Fault{Hang: true})})
		r.putChain(1, 10)
		r.evict()
		r.putChain(2, 6)
		synctest.Wait()
		r.end()
		r.end = func() {}
		w := r.Writers.Written()[tier.Disk]
		if n := w.Dropped[explain.Stopped].Chunks; n == 0 || w.Written.Chunks != 0 {
			t.Errorf("written %d, stopped %d; want none and some", w.Written.Chunks, n)
		}
		if err := r.Writers.Flush(t.Context(), false); w.Waiting > 0 && !errors.Is(err, tier.ErrClosed) {
			t.Errorf("a flush after the end: %v", err)
		}
		r.evict() // victims have nowhere to go
	})
}

// A space is deleted with the chunks that have left DRAM and are in no tier yet.
func TestDeleteSpaceDuringWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(t, options{
			mode: held, workers: 1,
			hook: tierfault.On(tierfault.Put, tierfault.Fault{Until: gate}),
		})
		c, other := r.putChain(1, 3), r.putChain(2, 1)
		r.evict()
		synctest.Wait() // one is in the disk's hands, the others wait
		deleted := make(chan struct{})
		go func() {
			defer close(deleted)
			if _, err := r.Remover.DeleteSpace(t.Context(), c.Space); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		close(gate)
		<-deleted
		r.flush()
		r.wantIn(c, 0, 0)
		r.wantIn(other, 0, 1)
		if n := r.disk.Stats().Entries; n != 1 {
			t.Errorf("%d chunks are on disk; want the other space's", n)
		}
	})
}

// A put that failed may have stored its chunk all the same: the index says so.
func TestWriteFailsAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{hook: tierfault.On(tierfault.Put, tierfault.Fault{Hang: true, Late: true})})
		c := r.putChain(1, 1)
		synctest.Wait()
		r.end()
		r.end = func() {}
		if !r.disk.Has(c.Key(0)) {
			t.Fatal("the disk does not have it")
		}
		r.checkIndex()
	})
}

// A chunk that is deleted while in transit does not come back. The deletion
// ends when it can no longer be found there.
func TestDeleteDuringWrite(t *testing.T) {
	for name, evicted := range map[string]bool{"entry": false, "victim": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				mode := through
				if evicted {
					mode = held
				}
				r := newRig(t, options{
					mode: mode, workers: 1,
					hook: tierfault.On(tierfault.Put, tierfault.Fault{Until: gate}),
				})
				c := r.putChain(1, 3)
				if evicted {
					r.evict()
				}
				synctest.Wait() // one is in the disk's hands, the others wait
				deleted := make(chan struct{})
				go func() {
					defer close(deleted)
					if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(c, 0, 3)); err != nil {
						t.Error(err)
					}
					if n := r.disk.Stats().Entries; n != 0 {
						t.Errorf("%d deleted chunks are on disk", n)
					}
					r.wantIn(c, 0, 0)
				}()
				synctest.Wait()
				select {
				case <-deleted:
					t.Error("what was deleted can still appear on disk")
				default:
				}
				close(gate)
				<-deleted
				synctest.Wait()
				if n := r.disk.Stats().Entries; n != 0 {
					t.Errorf("%d deleted chunks are on disk", n)
				}
			})
		})
	}
}
