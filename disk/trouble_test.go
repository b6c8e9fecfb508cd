package disk_test

import (
	"context"
	"errors"
	"flag"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/database/databasetest"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

var troublePuts = flag.Int("trouble", 60, "how many chunks each writer stores in each phase of TestTrouble; 30000 for a long run")

const (
	troubleDRAM    = 16 << 20
	troubleSize    = 64 << 10
	troublePutters = 3
	troubleGetters = 2
)

// troubled is DRAM over a disk tier in trouble.
type troubled struct {
	*store.Store
	disk  *disk.Tier
	arena *arena.Arena
	fault atomic.Pointer[tierfault.Fault] // nil: none
	mu    sync.Mutex
	next  uint64
	wrong atomic.Int64
	read  atomic.Int64
}

// hook lets everything through but what touches the device.
func (s *troubled) hook(c tierfault.Call) tierfault.Fault {
	if f := s.fault.Load(); f != nil && c.Op != tierfault.Contains {
		return *f
	}
	return tierfault.Fault{}
}

func newStore(t *testing.T) *troubled {
	t.Helper()
	s := new(troubled)
	var err error
	if s.arena, err = arena.New(arena.Options{CapacityBytes: troubleDRAM}); err != nil {
		t.Fatal(err)
	}
	lru, err := policy.New("lru", troubleDRAM)
	if err != nil {
		t.Fatal(err)
	}
	s.disk, err = disk.Open(disk.Options{
		Paths: []string{tiertest.Folder(t)}, CapacityBytes: 64 << 20, SegmentBytes: 8 << 20, Policy: "lru", IODepth: 2, Database: databasetest.Open, Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	hot := cpu.New(cpu.Options{
		Arena: s.arena, HighWatermark: 0.95, LowWatermark: 0.90,
		Ledger: ledger.New(ledger.Options{CapacityBytes: troubleDRAM, Policy: lru, Limits: ledger.Limits{Lease: 6 << 20, Load: 3 << 20, Unwritten: 3 << 20, Total: 12 << 20}}),
	})
	s.Store = store.New(store.Options{
		Hot: hot, Log: zerolog.Nop(),
		Below: []store.Below{{
			Place: tier.Disk,
			Tier:  tier.WithBreaker(tierfault.Wrap(s.disk, s.hook), tier.BreakerOptions{Log: zerolog.Nop()}),
		}},
	})
	ctx, stop := context.WithCancel(context.Background())
	var ran sync.WaitGroup
	ran.Go(func() { _ = s.disk.Run(ctx) })
	ran.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() {
		stop()
		ran.Wait()
		if err := errors.Join(s.disk.Close(), hot.Close(), s.arena.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// put stores one new chunk, as a client does.
func (s *troubled) put(ctx context.Context, o ledger.Owner) error {
	s.mu.Lock()
	s.next++
	c := tiertest.Chain(s.next, 1)
	s.mu.Unlock()
	var g [1]store.Grant
	if _, err := s.Filler.Reserve(ctx, store.Reservation{Owner: o, Patience: tier.Wait}, c, 0, []uint32{troubleSize}, g[:]); err != nil {
		return err
	}
	tiertest.Fill(g[0].Ref.Block.Bytes(), c.Key(0))
	g[0].Ref.Block.Seal()
	s.Filler.Commit(c, 0, []tier.Ref{g[0].Ref}, 0, make([]bool, 1))
	return nil
}

// get loads a chunk from any tier that has it, and checks the payload.
func (s *troubled) get(ctx context.Context, o ledger.Owner, back uint64) {
	s.mu.Lock()
	n := s.next - min(back, s.next-1)
	s.mu.Unlock()
	c := tiertest.Chain(n, 1)
	ref, _, err := s.Loader.Load(ctx, store.Requester{Owner: o}, c, 0, tier.All)
	if err != nil {
		return
	}
	if err := tiertest.CheckPayload(c.Key(0), ref.Block.Bytes()); err != nil {
		s.wrong.Add(1)
	}
	s.read.Add(1)
	s.Leases.Release(o, ledger.Lease, []tier.Ref{ref})
}

// phase loads the store for a while, and returns how many chunks came to the disk.
func (s *troubled) phase(t *testing.T, name string, fault *tierfault.Fault) (written uint64) {
	t.Helper()
	s.fault.Store(fault)
	before := s.Writers.Written()[tier.Disk].Written.Chunks
	reads := s.read.Load()
	var g sync.WaitGroup
	for range troublePutters {
		g.Go(func() {
			o := s.Leases.NewOwner()
			defer s.Leases.CloseOwner(o)
			for range *troublePuts {
				if err := s.put(t.Context(), o); err != nil {
					t.Errorf("%s: put: %v", name, err)
					return
				}
			}
		})
	}
	for w := range uint64(troubleGetters) {
		g.Go(func() {
			o := s.Leases.NewOwner()
			defer s.Leases.CloseOwner(o)
			for n := range uint64(*troublePuts) {
				s.get(t.Context(), o, (w+7*n)*31%600)
			}
		})
	}
	begun := time.Now()
	g.Wait() // a request that hangs hangs the bubble
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("%s: the requests took %v", name, took)
	}
	time.Sleep(5 * time.Second) // what is written behind comes to the disk, and its probes
	written = s.Writers.Written()[tier.Disk].Written.Chunks - before
	t.Logf("%-10s %5d reads, %5d written in %v; %d goroutines", name, s.read.Load()-reads, written, time.Since(begun), runtime.NumGoroutine())
	return written
}

// A disk that fails or hangs under full load is not noticed by who stores: no
// put fails or hangs, no wrong byte is read, nothing piles up, and when the
// trouble ends the disk is used again.
func TestTrouble(t *testing.T) {
	for name, fault := range map[string]tierfault.Fault{
		"EIO":       {Err: syscall.EIO},
		"read-only": {Err: syscall.EROFS},
		"full":      {Err: tier.ErrNoSpace},
		"hang":      {Delay: time.Second, Err: tier.ErrHung},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore(t)
				all := uint64(troublePutters * *troublePuts)
				if n := s.phase(t, "well", nil); n < all {
					t.Errorf("%d of %d chunks were written", n, all)
				}
				calm := runtime.NumGoroutine()
				if n := s.phase(t, "in trouble", &fault); n > 0 {
					t.Errorf("%d chunks are said to be written by a disk in trouble", n)
				}
				if n := runtime.NumGoroutine(); n > calm+100 {
					t.Errorf("%d goroutines in trouble, %d before", n, calm)
				}
				s.fault.Store(nil)
				s.isUsed(t)
				if n := s.phase(t, "well again", nil); n < all {
					t.Errorf("%d of %d chunks were written after the trouble", n, all)
				}
				if n := s.wrong.Load(); n > 0 {
					t.Errorf("%d chunks with wrong bytes", n)
				}
				if s.read.Load() == 0 {
					t.Error("nothing can be read")
				}
			})
		})
	}
}

// isUsed wants the disk to be used again.
func (s *troubled) isUsed(t *testing.T) {
	t.Helper()
	o := s.Leases.NewOwner()
	defer s.Leases.CloseOwner(o)
	deadline := time.Now().Add(2 * time.Minute)
	for was := s.disk.Stats().Puts; s.disk.Stats().Puts < was+10 || s.Store.Operator.Stats().Tiers[tier.Disk].Off; {
		if err := s.put(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if time.Sleep(100 * time.Millisecond); time.Now().After(deadline) {
			t.Fatal("the disk works, and is not used")
		}
	}
}
