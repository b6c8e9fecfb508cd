package blobtest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// Rig is a store over DRAM and a disk in plain memory, and a remote tier that
// fails the test if it is used. When its test ends nothing may be held.
type Rig struct {
	*resp.Store
	Tiers   *store.Store
	MaxOwed int // of the store, from the next start on

	fault atomic.Pointer[tierfault.Hook]

	t        testing.TB
	capacity int64
	arena    *arena.Arena
	hot      *cpu.Tier
	disk     *tiertest.Memory
	stop     func()
}

// New makes a rig with so many bytes of DRAM; half of them may be leased.
func New(t testing.TB, capacity int64) *Rig {
	t.Helper()
	r := &Rig{t: t, capacity: capacity, disk: tiertest.NewMemory("disk", 256<<20)}
	r.start()
	t.Cleanup(func() { r.stop() })
	// Before the scan of the disk has ended the disk is asked for every name.
	for !r.Tiers.Recovery.Ready() {
		time.Sleep(time.Millisecond)
	}
	return r
}

func (r *Rig) start() {
	r.t.Helper()
	var err error
	if r.arena, err = arena.New(arena.Options{CapacityBytes: r.capacity}); err != nil {
		r.t.Fatal(err)
	}
	lru, err := policy.New("lru", r.capacity)
	if err != nil {
		r.t.Fatal(err)
	}
	l := ledger.New(ledger.Options{CapacityBytes: r.capacity, Policy: lru, Limits: ledger.Limits{Lease: r.capacity / 2, Unwritten: r.capacity / 4}})
	r.hot = cpu.New(cpu.Options{Arena: r.arena, Ledger: l, HighWatermark: 0.95, LowWatermark: 0.90})
	r.Tiers = store.New(store.Options{Hot: r.hot, Below: []store.Below{{Place: tier.Disk, Tier: r.faulty()}, {Place: tier.Remote, Tier: r.remote()}}, Log: zerolog.Nop()})
	r.Store = resp.NewStore(resp.StoreOptions{Tiers: r.Tiers, MaxOwed: r.MaxOwed, ShelterBytes: r.capacity / 10, LoadTimeout: time.Minute, Log: zerolog.Nop()})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.must(r.Tiers.Run(ctx)) })
	running.Go(func() { r.must(r.Store.Run(ctx)) })
	r.stop = func() {
		cancel()
		running.Wait()
		r.Tiers.Loader.Wait()
		st := l.Stats()
		if st.ProtectedBytes != 0 || st.Filling != 0 || st.LeavingBytes != 0 {
			r.t.Errorf("something is still held: %+v", st)
		}
		r.must(r.hot.Close())
		r.must(r.arena.Close())
	}
}

// hangs is how long a call of the disk hangs before the disk says so. Nothing else in
// the rig gives up in time: a busy machine is no fault.
const hangs = time.Second

// Fault decides from now on what happens to calls of the disk; nil lets all pass.
func (r *Rig) Fault(hook tierfault.Hook) { r.fault.Store(&hook) }

// faulty is the disk behind Fault and a breaker that soon probes.
func (r *Rig) faulty() tier.Tier {
	disk := tierfault.Wrap(r.disk, func(c tierfault.Call) tierfault.Fault {
		hook := r.fault.Load()
		if hook == nil || *hook == nil {
			return tierfault.Fault{}
		}
		f := (*hook)(c)
		if f.Hang {
			f.Hang, f.Delay, f.Err = false, hangs, tier.ErrHung
		}
		return f
	})
	return tier.WithBreaker(disk, tier.BreakerOptions{Pause: 10 * time.Millisecond, PauseMax: 50 * time.Millisecond, Log: zerolog.Nop()})
}

// Kill begins anew as after a kill: with the values on disk. It
// returns when the disk has been scanned, or could not be: before that a disk that does not
// answer for some milliseconds has nothing.
func (r *Rig) Kill() {
	r.t.Helper()
	r.stop()
	r.disk = r.disk.Reopen()
	r.start()
	for !r.Tiers.Recovery.Ready() {
		time.Sleep(time.Millisecond)
	}
}

// remote is a shared tier that fails the test at every call.
func (r *Rig) remote() tier.Tier {
	return struct{ tier.Tier }{tierfault.Wrap(tiertest.NewMemory("remote", 0), func(c tierfault.Call) tierfault.Fault {
		r.t.Errorf("the remote tier is asked: %s of %v", c.Op, c.Keys)
		return tierfault.Fault{Err: tier.ErrOff}
	})}
}

func (r *Rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Error(err)
	}
}

// Flush writes everything to the disk.
func (r *Rig) Flush() {
	r.t.Helper()
	r.must(r.Tiers.Writers.Flush(context.Background(), true))
}

// Restart begins anew with the values on disk, as a new process would.
func (r *Rig) Restart() {
	r.t.Helper()
	r.Flush()
	r.Kill()
}
