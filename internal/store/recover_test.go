package store_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// left is a disk with a chain of n chunks and a branch of two that leaves it
// after chunk 3.
func left(t *testing.T, n int) (disk *tiertest.Memory, trunk, branch *key.Chain) {
	t.Helper()
	trunk, branch = tiertest.Chain(1, n), tiertest.Chain(1, 6)
	copy(branch.Hashes[4:], tiertest.Chain(2, 2).Hashes)
	disk = tiertest.NewMemory("disk", 64*mib)
	a := newRig(t, options{lone: true}).arena
	store := func(c *key.Chain, i int) {
		e := tiertest.NewEntry(t, a, c, i, size)
		defer e.Block.Release()
		if err := disk.Put(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		store(trunk, i)
	}
	store(branch, 4)
	store(branch, 5)
	return disk.Reopen(), trunk, branch
}

func TestRecover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, trunk, branch := left(t, 100)
		r := newRig(t, options{disk: disk})
		r.see(trunk)
		r.see(branch)
		synctest.Wait()
		if !r.Recovery.Ready() {
			t.Error("not ready after the scan")
		}
		r.wantIn(trunk, 0, 100)
		r.wantIn(branch, 0, 6)
		if err := r.load(branch, 5); err != nil {
			t.Error(err)
		}
		if st := r.Store.Operator.Stats(); st.Chunks != 102 || st.Placeholders != 0 {
			t.Errorf("%d chunks and %d placeholders known; want 102 and 0", st.Chunks, st.Placeholders)
		}
	})
}

// While the scan has not begun, lookups, loads, puts and deletes work.
func TestBeforeRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, trunk, branch := left(t, 100)
		gate := make(chan struct{})
		r := newRig(t, options{disk: disk, scanning: true, hook: tierfault.On(tierfault.Recover, tierfault.Fault{Until: gate})})
		r.see(branch)
		if r.Recovery.Ready() {
			t.Error("ready before the scan")
		}
		longer := tiertest.Chain(1, 101)
		r.see(longer)
		r.wantIn(longer, 0, 100)
		r.wantIn(branch, 0, 6)
		r.wantIn(tiertest.Chain(5, 3), 0, 0)
		if err := r.load(trunk, 99); err != nil {
			t.Error(err)
		}
		r.put(longer, 100, 101, size)
		if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(trunk, 50, 51)); err != nil {
			t.Fatal(err)
		}
		close(gate)
		r.flush()
		synctest.Wait()
		if m := r.match(longer); m.Chunks != 50 {
			t.Errorf("%d chunks found; want the 50 before the deleted one", m.Chunks)
		}
		if n := disk.Stats().Entries; n != 102 {
			t.Errorf("%d entries on disk; want 102", n)
		}
	})
}

// asked is a disk that calls has before it says whether it has a chunk.
type asked struct {
	*tiertest.Memory
	has func()
}

func (d *asked) Has(k key.Key) bool {
	d.has()
	return d.Memory.Has(k)
}

// A store that is ready knows its disk: a purge is not refused, and no miss is put down
// to the scan.
func TestReadyIsScanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, trunk, branch := left(t, 10)
		disk, calls := &asked{Memory: memory}, 0
		r := newRig(t, options{disk: memory, planner: disk, idle: true})
		disk.has = func() { // also where the scan has ended and is compared with the index
			calls++
			if r.Recovery.Ready() && !r.Scanned() {
				t.Error("ready before the disk is scanned")
			}
		}
		r.see(trunk)
		r.see(branch)
		r.start()
		synctest.Wait()
		if calls == 0 || !r.Recovery.Ready() || !r.Scanned() {
			t.Errorf("asked %d times, ready %t, scanned %t", calls, r.Recovery.Ready(), r.Scanned())
		}
		disk.has = func() {}
	})
}

// parted is a context that calls between where a lookup asks it whether others go first:
// between two parts of a chain.
type parted struct {
	context.Context
	between func()
}

func (c parted) Value(k any) any {
	c.between()
	return c.Context.Value(k)
}

// A scan that ends between two parts of a lookup hides nothing that the first part did not
// know yet.
func TestScanEndsAmidLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, trunk, branch := left(t, 10)
		gate := make(chan struct{})
		r := newRig(t, options{disk: disk, scanning: true, hook: tierfault.On(tierfault.Recover, tierfault.Fault{Until: gate})})
		r.see(trunk)
		r.see(branch)
		c := tiertest.Chain(7, 1000)
		c.Space, c.Alone = trunk.Space, true
		copy(c.Hashes, trunk.Hashes[:5])
		end := sync.OnceFunc(func() { close(gate); synctest.Wait() })
		if r.Recovery.Ready() {
			t.Error("ready before the scan")
		}
		m, err := r.Lookups.Match(parted{t.Context(), end}, c, tier.All)
		if err != nil || m.Chunks != 5 || !r.Recovery.Ready() {
			t.Errorf("%d chunks, %v, ready %t; want 5 of a scan that has ended", m.Chunks, err, r.Recovery.Ready())
		}
	})
}

// A lookup while the scan runs asks the tier; if that fails it says so.
func TestAskFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, trunk, branch := left(t, 10)
		gate := make(chan struct{})
		broken := errors.New("device gone")
		r := newRig(t, options{disk: disk, scanning: true, hook: func(c tierfault.Call) tierfault.Fault {
			switch c.Op {
			case tierfault.Recover:
				return tierfault.Fault{Until: gate}
			case tierfault.Contains:
				return tierfault.Fault{Err: broken}
			}
			return tierfault.Fault{}
		}})
		if m, err := r.Lookups.Match(t.Context(), trunk, tier.All); err != nil || m.Chunks != 0 {
			t.Errorf("got %d chunks, %v; want none: a tier that fails shortens the prefix", m.Chunks, err)
		}
		r.see(trunk)
		r.see(branch)
		close(gate)
		synctest.Wait()
	})
}

// A scan that fails ends nothing: the store works with the chunks that were found,
// and new ones, and tries again.
func TestRecoverFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, trunk, branch := left(t, 40)
		broken := errors.New("device gone")
		r := newRig(t, options{disk: disk, scanning: true, hook: func(c tierfault.Call) tierfault.Fault {
			if c.Op == tierfault.Recover && c.N < 3 {
				return tierfault.Fault{Err: broken, Serve: 10}
			}
			return tierfault.Fault{}
		}})
		r.see(trunk)
		r.see(branch)
		synctest.Wait()
		if st := r.Store.Operator.Stats(); st.Chunks != 10 || st.RecoverFailed != 1 || !r.Recovery.Ready() {
			t.Errorf("%d chunks known after %d failed scans, ready %t; want the 10 that were handed over, 1, true", st.Chunks, st.RecoverFailed, r.Recovery.Ready())
		}
		c := r.putChain(7, 3)
		r.flush()
		r.wantIn(c, 3, 0)
		r.wantWritten(3, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := r.Store.Operator.Stats(); st.Chunks != 45 || st.RecoverFailed != 3 {
			t.Errorf("%d chunks known after %d failed scans; want all 45, and 3", st.Chunks, st.RecoverFailed)
		}
		r.wantIn(trunk, 0, 40)
	})
}

// TestWritesBesideScan: chunks that have no room before the scan is over are not tried again
// with each one that has, no flush waits for them, and they are written once it is over.
func TestWritesBesideScan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large, gate := tiertest.Chain(1, 4), make(chan struct{})
		var scanned atomic.Bool
		var tries atomic.Int64
		r := newRig(t, options{scanning: true, hook: func(c tierfault.Call) tierfault.Fault {
			switch {
			case c.Op == tierfault.Recover:
				return tierfault.Fault{Until: gate}
			case c.Op == tierfault.Put && slices.Contains(tiertest.Keys(large, 0, 4), c.Keys[0]) && !scanned.Load():
				tries.Add(1)
				return tierfault.Fault{Err: tier.ErrOff}
			}
			return tierfault.Fault{}
		}})
		r.put(large, 0, 4, size)
		for seed := range uint64(50) {
			r.putChain(10+seed, 1)
			time.Sleep(100 * time.Millisecond)
		}
		if n := tries.Load(); n > 8 {
			t.Errorf("%d tries of 4 chunks in 5 s", n)
		}
		r.flush()
		r.wantWritten(50, map[explain.Decline]uint64{explain.WhileOff: 4})
		scanned.Store(true)
		close(gate)
		time.Sleep(5 * time.Second)
		r.wantWritten(54, map[explain.Decline]uint64{explain.WhileOff: 4})
	})
}
