package store_test

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// transit is a rig with a chain of three chunks in the hands of a writer, which
// goes on when the gate opens.
func transit(t *testing.T) (r *rig, c *key.Chain, gate chan struct{}) { return transitOf(t, 0) }

// transitOf is transit with so many entries of DRAM at most.
func transitOf(t *testing.T, entries int) (r *rig, c *key.Chain, gate chan struct{}) {
	gate = make(chan struct{})
	r = newRig(t, options{
		entries: entries,
		mode:    held,
		hook:    tierfault.On(tierfault.Put, tierfault.Fault{Until: gate}),
	})
	c = r.putChain(1, 3)
	r.evict()
	synctest.Wait()
	for i := range 3 {
		if r.hot.Has(c.Key(i)) || r.disk.Has(c.Key(i)) {
			t.Fatalf("chunk %d is not on its way", i)
		}
	}
	return r, c, gate
}

// A chunk on its way down is found, taken, and readable.
func TestTransitIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c, gate := transit(t)
		r.wantIn(c, 3, 0)
		r.wantStatus(c, store.Exists, store.Exists, store.Exists)
		o := r.Leases.NewOwner()
		refs := make([]tier.Ref, 3)
		if n, err := r.Leases.Hold(o, ledger.Lease, c, 0, 3, refs); n != 3 || err != nil {
			t.Fatalf("%d chunks held, %v; want 3", n, err)
		}
		for i, ref := range refs {
			if err := tiertest.CheckPayload(c.Key(i), ref.Block.Bytes()); err != nil {
				t.Errorf("chunk %d: %v", i, err)
			}
		}
		r.Leases.Release(o, ledger.Lease, refs)
		r.Leases.CloseOwner(o)
		r.evict() // again, before the first write has ended
		r.wantIn(c, 3, 0)
		if err := r.load(c, 1); err != nil {
			t.Error(err)
		}
		close(gate)
		r.flush()
		r.wantWritten(3, nil)
		if n := r.hot.Ledger().Stats().DirtyEntries; n != 0 || !r.hot.Has(c.Key(1)) {
			t.Errorf("%d chunks that are on disk count as dirty, and one is in DRAM: %t", n, r.hot.Has(c.Key(1)))
		}
		for i := range 3 {
			r.wantOnDisk(c, i)
		}
	})
}

// It is taken also where DRAM has as many chunks as it may have: others go for it.
func TestTransitIntoFullDRAM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const entries = 8
		r, c, gate := transitOf(t, entries)
		r.putChain(2, entries)
		if n := ledger.FreeEntries(r.hot.Ledger()); n != 0 {
			t.Fatalf("there is room for %d more chunks", n)
		}
		o := r.Leases.NewOwner()
		refs := make([]tier.Ref, 3)
		if n, err := r.Leases.Hold(o, ledger.Lease, c, 0, 3, refs); n != 3 || err != nil {
			t.Errorf("%d chunks held, %v; want 3", n, err)
		}
		r.Leases.Release(o, ledger.Lease, refs)
		r.Leases.CloseOwner(o)
		close(gate)
		r.flush()
		r.wantIn(c, 3, 0)
		for i := range 3 {
			r.wantOnDisk(c, i)
		}
	})
}

// Where nothing can go for it, because all is in use, it stays on its way: the prefix is
// shorter until it is written.
func TestTransitIntoBusyDRAM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const entries = 8
		r, c, gate := transitOf(t, entries)
		held := make([]tier.Ref, entries)
		full := r.putChain(2, entries)
		o := r.Leases.NewOwner()
		if n, err := r.Leases.Hold(o, ledger.Lease, full, 0, entries, held); n != entries || err != nil {
			t.Fatalf("%d chunks held, %v", n, err)
		}
		refs := make([]tier.Ref, 3)
		if n, err := r.Leases.Hold(o, ledger.Lease, c, 0, 3, refs); n != 0 || err != nil {
			t.Errorf("%d chunks held, %v; there is no room for one", n, err)
		}
		r.wantIn(c, 3, 0) // on its way
		close(gate)
		r.flush()
		r.wantOnDisk(c, 0)
		r.Leases.Release(o, ledger.Lease, held)
		r.Leases.CloseOwner(o)
		if err := r.load(c, 0); err != nil {
			t.Error(err)
		}
	})
}

// One that is on its way to a tier that is cleared stays in DRAM.
func TestTransitOutlivesAClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c, gate := transit(t)
		cleared := make(chan error)
		go func() {
			_, err := r.Remover.Clear(t.Context(), tier.Of(tier.Disk))
			cleared <- err
		}()
		synctest.Wait() // the writes are under way
		close(gate)
		if err := <-cleared; err != nil {
			t.Fatal(err)
		}
		r.wantIn(c, 3, 0)
		for i := range 3 {
			if !r.hot.Has(c.Key(i)) || r.disk.Has(c.Key(i)) {
				t.Errorf("chunk %d: in DRAM %t, on disk %t", i, r.hot.Has(c.Key(i)), r.disk.Has(c.Key(i)))
			}
		}
		if n := r.hot.Ledger().Stats().DirtyEntries; n != 3 {
			t.Errorf("%d chunks are dirty, so that they would be written if they were evicted; want 3", n)
		}
		r.flush()
		for i := range 3 {
			r.wantOnDisk(c, i)
		}
	})
}

// One that is deleted on its way down is gone, for good.
func TestTransitIsDeleted(t *testing.T) {
	for name, back := range map[string]bool{"on its way": false, "come back": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, c, gate := transit(t)
				if back {
					if err := r.load(c, 2); err != nil {
						t.Fatal(err)
					}
				}
				deleted := make(chan error)
				go func() {
					_, err := r.Remover.Delete(t.Context(), tiertest.Keys(c, 2, 3))
					deleted <- err
				}()
				synctest.Wait() // the write is under way
				if err := r.load(c, 2); !errors.Is(err, tier.ErrNotFound) {
					t.Errorf("load of what is being deleted: %v", err)
				}
				close(gate)
				if err := <-deleted; err != nil {
					t.Error(err)
				}
				r.flush()
				r.wantIn(c, r.match(c).In[tier.CPU].Chunks, 2-r.match(c).In[tier.CPU].Chunks)
				if r.hot.Has(c.Key(2)) || r.disk.Has(c.Key(2)) {
					t.Error("it is still there")
				}
			})
		})
	}
}

// Nor does one come back that was found on its way down before its deletion,
// which has ended since.
func TestTransitIsDeletedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c, gate := transit(t)
		loaded := make(chan error)
		r.HoldUp(func() {
			go func() { loaded <- r.load(c, 2) }()
			for range 1000 {
				runtime.Gosched() // until it is about to come back
			}
			r.Recall(tiertest.Keys(c, 2, 3))
		})
		if err := <-loaded; !errors.Is(err, tier.ErrNotFound) || r.hot.Has(c.Key(2)) {
			t.Errorf("load of what was deleted: %v; it is in DRAM: %t", err, r.hot.Has(c.Key(2)))
		}
		close(gate)
		r.flush()
	})
}

// Nor is a chunk granted that is just between DRAM's books and its writer.
func TestHandoverKeepsItsKey(t *testing.T) {
	r, c, _, evicted := leaving(t)
	r.Settle(tier.CPU, c.Key(1)) // as one would who has just missed it
	r.wantStatus(c, store.Exists, store.Exists)
	<-evicted
	for i := range 2 {
		if err := r.load(c, i); err != nil {
			t.Errorf("chunk %d: %v", i, err)
		}
	}
	r.flush()
}

// What cannot be written is gone when that is known, and can be stored again.
func TestTransitFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(t, options{
			mode: held,
			hook: tierfault.On(tierfault.Put, tierfault.Fault{Until: gate, Err: errors.New("no")}),
		})
		c := r.putChain(1, 1)
		r.evict()
		synctest.Wait()
		r.wantIn(c, 1, 0)
		close(gate)
		r.flush()
		r.wantIn(c, 0, 0)
		r.put(c, 0, 1, size)
		r.wantIn(c, 1, 0)
	})
}
