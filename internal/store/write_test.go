package store_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// wantWritten compares what the disk was given so far.
func (r *rig) wantWritten(written uint64, dropped map[explain.Decline]uint64) {
	r.t.Helper()
	w := r.Writers.Written()[tier.Disk]
	if w.Written.Chunks != written {
		r.t.Errorf("%d chunks written; want %d", w.Written.Chunks, written)
	}
	for reason := range w.Dropped {
		if w.Dropped[reason].Chunks != dropped[reason] {
			r.t.Errorf("%d chunks dropped because of %s; want %d", w.Dropped[reason].Chunks, reason, dropped[reason])
		}
	}
	for reason := range dropped {
		if _, ok := w.Dropped[reason]; !ok {
			r.t.Errorf("nothing was dropped because of %s; want %d", reason, dropped[reason])
		}
	}
}

// wantOnDisk checks the payload that the disk has of chunk i, and its record.
func (r *rig) wantOnDisk(c *key.Chain, i int) {
	r.t.Helper()
	b, err := r.disk.Get(context.Background(), c.Key(i), tiertest.Allocator{Arena: r.arena})
	if err != nil {
		r.t.Errorf("chunk %d on disk: %v", i, err)
		return
	}
	defer b.Release()
	if err := tiertest.CheckPayload(c.Key(i), b.Bytes()); err != nil {
		r.t.Error(err)
	}
}

func TestWriteThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.putChain(1, 8)
		synctest.Wait() // nobody flushes
		r.wantWritten(8, nil)
		for i := range c.Len() {
			r.wantOnDisk(c, i)
		}
		err := r.disk.Recover(t.Context(), func(recs []tier.Record) {
			for _, rec := range recs {
				if want := tiertest.RecordOf(c, int(rec.Depth), size); rec != want {
					t.Errorf("stored %+v; want %+v", rec, want)
				}
			}
		})
		if err != nil {
			t.Error(err)
		}
		r.evict()
		r.wantIn(c, 0, 8)
		r.wantWritten(8, nil) // clean victims are not written again
	})
}

func TestWriteHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{mode: held})
		first := r.putChain(1, 3)
		synctest.Wait()
		r.wantWritten(0, nil)
		r.flush()
		r.wantWritten(3, nil)
		second := r.putChain(2, 3)
		synctest.Wait()
		r.wantWritten(3, nil) // a flush forces only what was there
		r.evict()
		synctest.Wait()
		r.wantWritten(6, nil)
		r.wantIn(first, 0, 3)
		r.wantIn(second, 0, 3)
		for i := range 3 {
			r.wantOnDisk(second, i)
		}
	})
}

// Chunks that come and go and come again do not pile up on the list of chunks
// still to be written.
func TestListOfDirtyChunksStaysShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{mode: held})
		const n = 32
		most := 0
		for range 400 {
			c := r.putChain(1, n)
			synctest.Wait()
			most = max(most, r.Writers.Written()[tier.Disk].Waiting)
			if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(c, 0, n)); err != nil {
				t.Fatal(err)
			}
		}
		if most > 2*n+4096+n {
			t.Errorf("%d chunks waited where %d were there", most, n)
		}
	})
}

// The watermark must not throw DRAM out because victims free their room only
// when they are written.
func TestShrinkWaitsForVictims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(t, options{
			capacity: 2 * mib, // 32 chunks
			mode:     held,
			hook:     tierfault.On(tierfault.Put, tierfault.Fault{Until: gate}),
		})
		c := tiertest.Chain(1, 32)
		for i := range 32 {
			r.put(c, i, i+1, size)
			synctest.Wait()
		}
		// 31 chunks are above the mark of 30.4; down to 28.8 that is 3, and
		// the 32nd takes up one of them.
		if n := r.hot.Ledger().Stats().Evictions; n > 4 {
			t.Errorf("%d chunks were evicted to get from the high to the low watermark", n)
		}
		close(gate)
		synctest.Wait()
		m := r.match(c)
		if m.Chunks != 32 {
			t.Errorf("%d of 32 chunks are left", m.Chunks)
		}
	})
}

func TestWriteDropped(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		reason explain.Decline
	}{
		{"off", tier.ErrOff, explain.WhileOff},
		{"failed", errors.New("the device is gone"), explain.WriteFailed},
		{"too large", tier.ErrTooLarge, explain.NoRoom},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, options{hook: tierfault.On(tierfault.Put, tierfault.Fault{Err: c.err})})
				ch := r.putChain(1, 2)
				r.flush()
				r.wantWritten(0, map[explain.Decline]uint64{c.reason: 2})
				r.wantIn(ch, 2, 0) // still good in DRAM
				r.evict()          // dirty victims are tried once more
				synctest.Wait()
				r.wantWritten(0, map[explain.Decline]uint64{c.reason: 4})
				r.wantIn(ch, 0, 0)
			})
		})
	}
}

func TestWriteDropsCorrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(t, options{
			mode: held,
			hook: tierfault.On(tierfault.Put, tierfault.Fault{Until: gate}),
		})
		close(gate)
		c := r.putChain(1, 2)
		r.flip(c, 1)
		r.flush()
		r.wantWritten(1, map[explain.Decline]uint64{explain.BadPayload: 1})
		r.wantIn(c, 1, 0)
		if n := r.Store.Operator.Stats().Corrupt; n != 1 {
			t.Errorf("%d chunks counted as corrupt; want 1", n)
		}
	})
}

// flip changes a bit of chunk i in DRAM.
func (r *rig) flip(c *key.Chain, i int) {
	r.t.Helper()
	refs := make([]tier.Ref, 1)
	if n, err := r.hot.Hold(ledger.Daemon, ledger.IO, tiertest.Keys(c, i, i+1), refs); n != 1 {
		r.t.Fatalf("hold: %v", err)
	}
	refs[0].Block.Bytes()[size/3] ^= 4
	r.hot.Release(ledger.Daemon, ledger.IO, refs)
}

// Two chunks may wait to be written. The disk hangs, so DRAM has to evict
// more: those have no room in the queue and are lost.
func TestWriteQueueFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(t, options{
			capacity: 8 * size,
			limits:   ledger.Limits{Unwritten: 2 * size},
			hook:     tierfault.On(tierfault.Put, tierfault.Fault{Until: gate}),
		})
		r.putChain(1, 2)
		synctest.Wait() // both are being written
		c := r.putChain(2, 4)
		synctest.Wait()
		r.evict()
		r.wantWritten(0, map[explain.Decline]uint64{explain.QueueFull: 4})
		r.wantIn(c, 0, 0)
		close(gate)
		synctest.Wait()
		r.wantWritten(2, map[explain.Decline]uint64{explain.QueueFull: 4})
	})
}

// What the queue has no room for is taken up when there is room, also when
// it is others who make it.
func TestWriteResumesWhenLeasesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{limits: ledger.Limits{Total: 4 * size}})
		o := r.Leases.NewOwner()
		mine, err := r.reserve(o, tiertest.Chain(2, 4), 0, 4, size) // all there is
		if err != nil {
			t.Fatal(err)
		}
		ready := mine[:1]
		commit(r.Store, tiertest.Chain(2, 4), 0, fill(tiertest.Chain(2, 4), 0, ready))
		more, err := r.reserve(o, tiertest.Chain(3, 1), 0, 1, size)
		if err != nil && !errors.Is(err, tier.ErrNoSpace) && !errors.Is(err, tier.ErrOverBudget) {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, g := range append(mine[1:], more...) {
			r.Filler.Abort([]tier.Ref{g.Ref})
		}
		synctest.Wait()
		r.wantWritten(1, nil)
		r.Leases.CloseOwner(o)
	})
}

// TestWriteLargerThanQueue: a chunk that is larger than the queue is written before those
// behind it, also beside one that takes for ever.
func TestWriteLargerThanQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, gate := tiertest.Chain(1, 1), make(chan struct{})
		r := newRig(t, options{limits: ledger.Limits{Unwritten: 2 * size}, hook: tierfault.OnKey(tierfault.Put, slow.Key(0), tierfault.Fault{Until: gate})})
		r.put(slow, 0, 1, size)
		synctest.Wait() // it is being written
		r.put(tiertest.Chain(2, 1), 0, 1, 3*size)
		r.putChain(3, 2)
		synctest.Wait()
		r.wantWritten(3, nil)
		close(gate)
		r.flush()
		r.wantWritten(4, nil)
	})
}

func TestWriteMakesRoomBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{disk: tiertest.NewMemory("disk", 10*size)})
		first := r.putChain(1, 9)
		r.flush()
		second := r.putChain(2, 3)
		r.flush()
		r.wantWritten(12, nil)
		r.evict()
		r.wantIn(second, 0, 3)
		if m := r.match(first); m.Chunks >= 9 || m.Chunks < 5 {
			t.Errorf("%d of 9 older chunks are left; want a shorter prefix", m.Chunks)
		}
	})
}

// Each tier below gets the committed chunks, however fast the other is.
func TestWriteToBothTiers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := tiertest.NewMemory("remote", 64*mib)
		slow := tierfault.On(tierfault.Put, tierfault.Fault{Delay: time.Second})
		r := newRig(t, options{remote: tierfault.Wrap(remote, slow)})
		c := r.putChain(1, 20)
		r.flush()
		for i := range c.Len() {
			if !remote.Has(c.Key(i)) || !r.disk.Has(c.Key(i)) {
				t.Fatalf("chunk %d: on disk %t, in remote %t", i, r.disk.Has(c.Key(i)), remote.Has(c.Key(i)))
			}
		}
	})
}

// The disk is kept below its high watermark ahead of the writes: none of them
// has to ask for room.
func TestDiskIsTrimmedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := tiertest.NewMemory("disk", 40*size)
		r := newRig(t, options{disk: disk})
		for i := range 30 {
			r.putChain(uint64(i), 4)
			synctest.Wait()
			if used := disk.Stats().UsedBytes; used > 38*size {
				t.Fatalf("%d chunks of 40 are in use", used/size)
			}
		}
		if st := disk.Stats(); st.Evictions < 60 {
			t.Errorf("%d evictions", st.Evictions)
		}
	})
}

// What the daily budget does not allow stays in DRAM, is counted, and has its
// chance when it is evicted: by then there may be some budget again.
func TestWriteBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hour = 8 * size
		r := newRig(t, options{perDay: 24 * hour})
		c := r.putChain(1, 12)
		synctest.Wait()
		r.wantWritten(8, map[explain.Decline]uint64{explain.WriteBudget: 4})
		r.wantIn(c, 12, 0)
		time.Sleep(15 * time.Minute) // two more
		r.putChain(2, 4)
		synctest.Wait()
		r.wantWritten(10, map[explain.Decline]uint64{explain.WriteBudget: 6})
		time.Sleep(24 * time.Hour) // an hour's share is saved up, no more
		r.evict()
		synctest.Wait()
		r.wantWritten(16, map[explain.Decline]uint64{explain.WriteBudget: 6})
		r.flush()
	})
}

// A write that fails costs no budget.
func TestWriteBudgetOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{
			workers: 1, perDay: 24 * 4 * size,
			hook: func(c tierfault.Call) tierfault.Fault {
				if c.Op == tierfault.Put && c.N < 20 {
					return tierfault.Fault{Err: errors.New("no")}
				}
				return tierfault.Fault{}
			},
		})
		r.putChain(1, 20)
		synctest.Wait()
		r.putChain(2, 4)
		synctest.Wait()
		r.wantWritten(4, map[explain.Decline]uint64{explain.WriteFailed: 20})
	})
}
