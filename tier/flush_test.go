package tier_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// A flush that began before a chunk was evicted waits for it on its way down.
func TestFlushWaitsForVictims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(t, options{
			write:  tier.WriteOptions{Workers: 1},
			limits: ledger.Limits{Unwritten: 4 * size},
			hook:   tierfault.On(tierfault.Put, tierfault.Fault{Until: gate}),
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
		r.wantWritten(3, 0, nil)
	})
}

// What was dropped and is still in DRAM is not on disk, and a flush that comes
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
		r.flush()
		for told, want := range map[uint64]uint64{0: 2, 1: 1, 2: 0, 3: 0} {
			reason, v := r.Kept(tier.Volume{Chunks: told, Bytes: told * size})
			if v != (tier.Volume{Chunks: want, Bytes: want * size}) || want > 0 && reason != "dropped_before" {
				t.Errorf("where %d were told of: %q, %v; want %d chunks", told, reason, v, want)
			}
		}
		broken.Store(false)
		r.flush()
		if reason, v := r.Kept(tier.Volume{}); v.Chunks != 0 {
			t.Errorf("with everything on disk: %q, %v", reason, v)
		}
	})
}

func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{hook: tierfault.On(tierfault.Put, tierfault.Fault{Delay: time.Minute})})
		r.putChain(1, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Flush(ctx, false); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a flush that may not wait: %v", err)
		}
		if err := r.Flush(t.Context(), true); err != nil {
			t.Error(err)
		}
		r.wantWritten(1, 0, nil)
		if n := r.disk.Syncs(); n != 1 {
			t.Errorf("%d syncs by a durable flush; want 1", n)
		}
	})
}

// When Run ends, what it could not write is let go and counted.
func TestStopWithWorkLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{hook: tierfault.On(tierfault.Put, tierfault.Fault{Hang: true})})
		r.putChain(1, 10)
		r.evict()
		r.putChain(2, 6)
		synctest.Wait()
		r.end()
		r.end = func() {}
		w := r.Written()[tier.Disk]
		if n := w.Dropped[tier.DropStopped].Chunks; n == 0 || w.Written.Chunks != 0 {
			t.Errorf("written %d, stopped %d; want none and some", w.Written.Chunks, n)
		}
		if err := r.Flush(t.Context(), false); w.Waiting > 0 && !errors.Is(err, tier.ErrClosed) {
			t.Errorf("a flush after the end: %v", err)
		}
		r.evict() // victims have nowhere to go
	})
}

// A space is deleted with what has left DRAM and is in no tier yet.
func TestDeleteSpaceDuringWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(t, options{
			write: tier.WriteOptions{Mode: tier.WriteBack, Workers: 1},
			hook:  tierfault.On(tierfault.Put, tierfault.Fault{Until: gate}),
		})
		c, other := r.putChain(1, 3), r.putChain(2, 1)
		r.evict()
		synctest.Wait() // one is in the disk's hands, the others wait
		deleted := make(chan struct{})
		go func() {
			defer close(deleted)
			if _, err := r.DeleteSpace(t.Context(), c.Space); err != nil {
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

// What is deleted while it is on its way down does not come back. The deletion
// ends when it can no longer be found there.
func TestDeleteDuringWrite(t *testing.T) {
	for name, evicted := range map[string]bool{"entry": false, "victim": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				mode := tier.WriteThrough
				if evicted {
					mode = tier.WriteBack
				}
				r := newRig(t, options{
					write: tier.WriteOptions{Mode: mode, Workers: 1},
					hook:  tierfault.On(tierfault.Put, tierfault.Fault{Until: gate}),
				})
				c := r.putChain(1, 3)
				if evicted {
					r.evict()
				}
				synctest.Wait() // one is in the disk's hands, the others wait
				deleted := make(chan struct{})
				go func() {
					defer close(deleted)
					if _, err := r.Delete(t.Context(), tiertest.Keys(c, 0, 3)); err != nil {
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
