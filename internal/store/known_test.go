package store_test

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// other fills granted chunks with bytes that are not those of put, and stores
// them. It returns for which the store kept them.
func (r *rig) other(c *key.Chain, from int, grants []store.Grant) (stored []bool) {
	r.t.Helper()
	var refs []tier.Ref
	for _, g := range grants {
		b := g.Ref.Block
		b.SealSum(b.Write(bytes.Repeat([]byte{0xee}, b.Len())))
		refs = append(refs, g.Ref)
	}
	stored = make([]bool, len(refs))
	r.Filler.Commit(c, from, refs, 0, stored)
	return stored
}

// wantStatus reserves chunks of c from the first on.
func (r *rig) wantStatus(c *key.Chain, want ...store.GrantStatus) []store.Grant {
	r.t.Helper()
	grants, err := r.reserve(ledger.Daemon, c, 0, len(want), size)
	if err != nil || len(grants) != len(want) {
		r.t.Fatalf("reserve: %d grants, %v", len(grants), err)
	}
	for i, g := range grants {
		if g.Status != want[i] {
			r.t.Errorf("chunk %d: status %d; want %d", i, g.Status, want[i])
		}
	}
	return grants
}

// reopened is a rig over what an earlier one left on disk of a chain of n
// chunks, less those that were deleted.
func reopened(t *testing.T, n int, o options, deleted ...int) (*rig, *key.Chain) {
	t.Helper()
	c := tiertest.Chain(1, n)
	disk := tiertest.NewMemory("disk", 64*mib)
	a := newRig(t, options{lone: true}).arena
	for i := range n {
		e := tiertest.NewEntry(t, a, c, i, size)
		if err := disk.Put(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		e.Block.Release()
	}
	for _, i := range deleted {
		if err := disk.Delete(t.Context(), tiertest.Keys(c, i, i+1)); err != nil {
			t.Fatal(err)
		}
	}
	o.disk = disk.Reopen()
	r := newRig(t, o)
	r.see(c)
	return r, c
}

// A chunk on disk behind a gap has a value, with any of its ancestors missing: it
// is not granted again, and is a hit once the gap is filled.
func TestOrphanKeepsItsKey(t *testing.T) {
	for name, deleted := range map[string][]int{"the first": {0, 1}, "in between": {2, 3}, "all but the last": {0, 1, 2, 3, 4}} {
		for written, mode := range modes {
			t.Run(name+", "+written, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, c := reopened(t, 6, options{mode: mode}, deleted...)
					want := make([]store.GrantStatus, 6)
					for i := range want {
						want[i] = store.Exists
					}
					for _, i := range deleted {
						want[i] = store.Granted
					}
					grants := r.wantStatus(c, want...)
					first, last := deleted[0], deleted[len(deleted)-1]+1
					commit(r.Store, c, first, fill(c, first, grants[first:last]))
					if m := r.match(c); m.Chunks != 6 {
						t.Errorf("%d chunks found; want 6", m.Chunks)
					}
					r.flush()
					r.evict()
					for i := range 6 {
						if err := r.load(c, i); err != nil {
							t.Errorf("chunk %d: %v", i, err)
						}
					}
				})
			})
		}
	}
}

// A key that is known below another chunk is found by itself, after a restart too.
func TestReserveContradiction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := reopened(t, 4, options{}, 0, 1)
		liar := tiertest.Chain(1, 4)
		copy(liar.Hashes[:3], tiertest.Chain(2, 3).Hashes)
		liar.Space = c.Space
		grants := r.wantStatus(liar, store.Granted, store.Granted, store.Granted, store.Exists)
		commit(r.Store, liar, 0, fill(liar, 0, grants[:3]))
		r.wantIn(liar, 3, 1)
		r.wantIn(c, 0, 0) // its first two chunks are deleted
	})
}

// The same while the disk is being scanned.
func TestUnscannedKeepsItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r, c := reopened(t, 4, options{scanning: true, hook: tierfault.On(tierfault.Recover, tierfault.Fault{Until: gate})}, 0, 1)
		grants := r.wantStatus(c, store.Granted, store.Granted, store.Exists, store.Exists)
		commit(r.Store, c, 0, fill(c, 0, grants[:2]))
		r.wantIn(c, 2, 2)
		close(gate)
		synctest.Wait()
		r.wantIn(c, 2, 2)
	})
}

// A disk that is scanned and does not answer in time may have anything: nothing
// is granted before it does.
func TestSlowScanGrantsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r, c := reopened(t, 2, options{scanning: true, hook: func(c tierfault.Call) tierfault.Fault {
			switch c.Op {
			case tierfault.Recover, tierfault.Contains:
				return tierfault.Fault{Until: gate}
			}
			return tierfault.Fault{}
		}}, 0)
		if grants, err := r.reserve(ledger.Daemon, c, 0, 2, size); len(grants) != 0 || !errors.Is(err, tier.ErrNoSpace) {
			t.Errorf("%d grants, %v; want that there is no room yet", len(grants), err)
		}
		close(gate)
		synctest.Wait()
		grants := r.wantStatus(c, store.Granted, store.Exists)
		r.Filler.Abort([]tier.Ref{grants[0].Ref})
	})
}

// shy is a disk that fails to be scanned once, denies its chunks until a second
// scan, and has no room.
type shy struct {
	*tiertest.Memory
	scans atomic.Int32
}

func (d *shy) Has(k key.Key) bool { return d.scans.Load() > 1 && d.Memory.Has(k) }

func (d *shy) Sum(k key.Key) (uint64, uint32, bool) {
	if d.scans.Load() < 2 {
		return 0, 0, false
	}
	return d.Memory.Sum(k)
}

func (d *shy) Put(context.Context, tier.Entry) error { return tier.ErrNoSpace }

func (d *shy) Recover(ctx context.Context, emit func([]tier.Record)) error {
	if d.scans.Add(1) == 1 {
		return errIO
	}
	return d.Memory.Recover(ctx, emit)
}

// A disk that failed has nothing, until it works: chunks that were stored
// meanwhile come after those on disk.
func TestStoredWhileTheDiskFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, c, branch := left(t, 2)
		r := newRig(t, options{
			scanning: true, mode: held, disk: disk, planner: &shy{Memory: disk},
		})
		r.see(c)
		r.see(branch)
		synctest.Wait()
		if r.Scanned() || !r.Recovery.Ready() {
			t.Fatal("the scan has not failed")
		}
		grants := r.wantStatus(c, store.Granted, store.Granted)
		r.other(c, 0, grants[:1])
		commit(r.Store, c, 1, fill(c, 1, grants[1:]))
		time.Sleep(time.Minute)
		synctest.Wait()
		if !r.Scanned() {
			t.Fatal("the disk is not scanned")
		}
		r.evict()
		synctest.Wait()   // no writer has the victim any more
		r.wantIn(c, 0, 0) // what was stored last is gone, and nothing older comes back
		if !r.disk.Has(c.Key(1)) {
			t.Error("the same bytes were deleted")
		}
	})
}

// The disk is asked itself: the index may be behind it.
func TestDiskAheadOfTheIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := tiertest.Chain(1, 2)
		e := tiertest.NewEntry(t, r.arena, c, 1, size)
		if err := r.disk.Put(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		e.Block.Release()
		grants := r.wantStatus(c, store.Granted, store.Exists)
		commit(r.Store, c, 0, fill(c, 0, grants[:1]))
		r.wantIn(c, 1, 1)
	})
}

// What a tier below has come to have since a chunk was reserved stays.
func TestFirstCopyStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := tiertest.Chain(1, 3)
		grants := r.wantStatus(c, store.Granted, store.Granted, store.Granted)
		e := tiertest.NewEntry(t, r.arena, c, 1, size)
		if err := r.disk.Put(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		e.Block.Release()
		if stored := r.other(c, 0, grants); !stored[0] || stored[1] || !stored[2] {
			t.Errorf("stored: %v; want all but the one on disk", stored)
		}
		r.wantIn(c, 2, 1)
		if err := r.load(c, 1); err != nil {
			t.Error(err)
		}
	})
}

// Bytes that a disk did not tell of when others were stored under their key do
// not come back after those.
func TestStoredComesAfterOffline(t *testing.T) {
	for name, mode := range map[string]writeback.When{"through": through, "held": held} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, options{mode: mode})
				c := tiertest.Chain(1, 1)
				r.see(c)
				o := r.Leases.NewOwner()
				defer r.Leases.CloseOwner(o)
				r.replace(o, c, 1, 7)
				e := tiertest.NewEntry(t, r.arena, c, 0, size) // as a write that ends long after it was given up
				if err := r.disk.Put(t.Context(), e); err != nil {
					t.Fatal(err)
				}
				e.Block.Release()
				r.Settle(tier.Disk, c.Key(0))
				r.evict()
				r.flush()
				r.evict()
				if got := r.value(o, c); got != 7 {
					t.Errorf("read %d after 7 was stored", got)
				}
				if n := r.Store.Operator.Stats().Replaced; n != 1 && mode == held {
					t.Errorf("%d chunks replaced; want 1", n)
				}
			})
		})
	}
}

// What contradicts the prompts that are known is found by its keys after a scan.
func TestContradictionIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := tiertest.Chain(1, 2)
		disk := tiertest.NewMemory("disk", 64*mib)
		a := newRig(t, options{lone: true}).arena
		for i, parent := range []key.Hash{c.Hashes[1], c.Hashes[0]} { // each below the other
			e := tiertest.NewEntry(t, a, c, i, size)
			e.Parent = parent
			if err := disk.Put(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			e.Block.Release()
		}
		r := newRig(t, options{disk: disk.Reopen()})
		r.see(c)
		synctest.Wait()
		r.wantIn(c, 0, 2)
		if n := r.Store.Operator.Stats().Inconsistent; n != 1 {
			t.Errorf("%d contradictions are counted; want 1", n)
		}
	})
}
