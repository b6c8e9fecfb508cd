package store_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// maxChain is the length of the longest chain that inOrder knows.
const maxChain = 16

// newAuto is a rig of mode auto over a disk for eight chunks, of which it holds six or
// seven when it is full. It takes its time to write, of a chain in its order, so that
// nothing depends on which of its writers runs first.
func newAuto(t *testing.T, age time.Duration) *rig {
	t.Helper()
	r := newRig(t, options{
		disk: tiertest.NewMemory("disk", 8*size), mode: auto,
		hook: inOrder,
	})
	r.Store.Operator.Set(store.Settings{UnsafeAge: age})
	return r
}

// inOrder has the chunks of chains 1 to 5 written one after another.
func inOrder(c tierfault.Call) tierfault.Fault {
	if c.Op != tierfault.Put {
		return tierfault.Fault{}
	}
	for seed := uint64(1); seed <= 5; seed++ {
		all := tiertest.Chain(seed, maxChain)
		if i := slices.Index(tiertest.Keys(all, 0, maxChain), c.Keys[0]); i >= 0 {
			return tierfault.Fault{Delay: time.Duration(seed*maxChain+uint64(i)) * time.Millisecond}
		}
	}
	return tierfault.Fault{}
}

// written is how many chunks the disk was given, and whether it is held for DRAM to
// evict them.
func (r *rig) written() (chunks uint64, held bool) {
	w := r.Store.Operator.Stats().Written[tier.Disk]
	return w.Written.Chunks, w.Held
}

func (r *rig) wantAuto(chunks uint64, held bool) {
	r.t.Helper()
	synctest.Wait()
	time.Sleep(time.Second) // longer than it takes to write all there is
	synctest.Wait()
	if n, is := r.written(); n != chunks || is != held {
		r.t.Errorf("%d chunks were written, held %v; want %d, %v", n, is, chunks, held)
	}
}

// TestAutoWrite: chunks are written at once until the disk has evicted something,
// then when DRAM evicts them, at a flush, and at the end.
func TestAutoWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAuto(t, 0)
		r.putChain(1, 5)
		r.wantAuto(5, false)
		r.putChain(2, 5)
		r.wantAuto(10, true) // what was on its way when the disk became full is there too
		waits := r.putChain(3, 3)
		time.Sleep(time.Hour)
		r.wantAuto(10, true)
		if w := r.Store.Operator.Stats().Written[tier.Disk]; w.HeldBytes != 3*size || w.Waiting != 3 {
			t.Errorf("3 chunks are held, stats say %+v", w)
		}
		r.wantIn(waits, 3, 0)
		r.evict()
		r.wantAuto(16, true) // also 3 that the disk had evicted while DRAM had them
		r.wantIn(waits, 0, 3)
		if w := r.Store.Operator.Stats().Written[tier.Disk]; w.HeldBytes != 0 || w.Waiting != 0 {
			t.Errorf("nothing is held, stats say %+v", w)
		}
		r.putChain(4, 2)
		r.wantAuto(16, true)
		r.flush()
		r.wantAuto(18, true)
		r.putChain(5, 2)
		if left := r.Writers.FlushLast(t.Context()); len(left) > 0 {
			t.Errorf("left at the end: %+v", left)
		}
		r.wantAuto(20, true)
	})
}

// TestUnsafeAge: a chunk is in DRAM alone for so long at most, and for a few seconds
// more; of two the older one is written first. Another bound holds at once.
func TestUnsafeAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAuto(t, 10*time.Minute)
		r.putChain(1, 10)
		r.wantAuto(10, true)
		old := r.putChain(2, 2)
		time.Sleep(5 * time.Minute)
		young := r.putChain(3, 2)
		r.wantAuto(10, true)
		time.Sleep(5*time.Minute - 10*time.Second)
		r.wantAuto(10, true)
		time.Sleep(15 * time.Second)
		r.wantAuto(12, true)
		r.wantOnDisk(old, 1)
		r.wantIn(young, 2, 0)
		r.Store.Operator.Set(store.Settings{UnsafeAge: time.Minute})
		r.wantAuto(14, true)
		r.wantOnDisk(young, 1)
		r.Store.Operator.Set(store.Settings{})
		r.putChain(4, 1)
		time.Sleep(24 * time.Hour)
		r.wantAuto(14, true)
	})
}

// TestAutoWriteHasRoomAgain: once much was deleted from the disk chunks are written at
// once, also those that were held.
func TestAutoWriteHasRoomAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAuto(t, 0)
		first := r.putChain(1, 10)
		r.wantAuto(10, true)
		r.putChain(2, 2)
		r.wantAuto(10, true)
		if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(first, 0, first.Len())); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		r.wantAuto(12, false)
		r.putChain(3, 1)
		r.wantAuto(13, false)
	})
}

// TestAutoWriteFar: an object store has room for all, and gets chunks at once also while
// the disk is full.
func TestAutoWriteFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := tiertest.NewMemory("remote", 64*mib)
		r := newRig(t, options{
			disk: tiertest.NewMemory("disk", 8*size), remote: struct{ tier.Tier }{remote}, mode: auto,
		})
		r.putChain(1, 10)
		r.wantAuto(10, true)
		c := r.putChain(2, 3)
		r.wantAuto(10, true)
		ks := []bool{false}
		if err := remote.Contains(context.Background(), tiertest.Keys(c, 2, 3), ks); err != nil || !ks[0] {
			t.Errorf("the far tier waits with the disk: %v", err)
		}
		if w := r.Store.Operator.Stats().Written[tier.Remote]; w.Written.Chunks != 13 || w.Held {
			t.Errorf("the far tier: %+v", w)
		}
	})
}
