package disk_test

import (
	"context"
	"errors"
	"flag"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

var troubleFor = flag.Duration("trouble", 500*time.Millisecond, "how long each phase of TestTrouble goes on; 60s for a long run")

const (
	troubleDRAM    = 64 << 20
	troubleSize    = 256 << 10
	troublePutters = 3
	troubleGetters = 2
)

// store is DRAM over a disk tier in trouble.
type store struct {
	*stack.Stack
	disk  *disk.Tier
	arena *arena.Arena
	fault atomic.Pointer[tierfault.Fault] // nil: none
	mu    sync.Mutex
	next  uint64
	took  []time.Duration // puts of this phase
	wrong atomic.Int64
	read  atomic.Int64
}

// hook lets everything through but what touches the device.
func (s *store) hook(c tierfault.Call) tierfault.Fault {
	if f := s.fault.Load(); f != nil && c.Op != tierfault.Contains {
		return *f
	}
	return tierfault.Fault{}
}

func newStore(t *testing.T) *store {
	t.Helper()
	s := new(store)
	var err error
	if s.arena, err = arena.New(arena.Options{CapacityBytes: troubleDRAM}); err != nil {
		t.Fatal(err)
	}
	lru, err := policy.New("lru", troubleDRAM)
	if err != nil {
		t.Fatal(err)
	}
	s.disk, err = disk.Open(disk.Options{
		Paths: []string{t.TempDir()}, CapacityBytes: 512 << 20, SegmentBytes: 64 << 20, Policy: "lru", IODepth: 2, Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	hot := cpu.New(cpu.Options{
		Arena: s.arena, HighWatermark: 0.95, LowWatermark: 0.90,
		Ledger: ledger.New(ledger.Options{CapacityBytes: troubleDRAM, Policy: lru, Limits: ledger.Limits{Lease: 24 << 20, Load: 12 << 20, Unwritten: 12 << 20, Total: 50 << 20}}),
	})
	s.Stack = stack.NewStack(stack.Options{
		Hot: hot, Log: zerolog.Nop(),
		// The decorator hangs where the tier would say so itself.
		Below: []stack.Below{{
			Place: tier.Disk,
			Tier:  tier.WithBreaker(tierfault.Wrap(s.disk, s.hook), tier.BreakerOptions{Timeout: *troubleFor / 6, Pause: *troubleFor / 20, PauseMax: *troubleFor / 4, Log: zerolog.Nop()}),
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
func (s *store) put(ctx context.Context, o ledger.Owner) error {
	s.mu.Lock()
	s.next++
	c := tiertest.Chain(s.next, 1)
	s.mu.Unlock()
	begun := time.Now()
	var g [1]stack.Grant
	if _, err := s.Reserve(ctx, o, c, 0, []uint32{troubleSize}, g[:], true); err != nil {
		return err
	}
	tiertest.Fill(g[0].Ref.Block.Bytes(), c.Key(0))
	g[0].Ref.Block.Seal()
	s.Commit(c, 0, []tier.Ref{g[0].Ref})
	s.mu.Lock()
	s.took = append(s.took, time.Since(begun))
	s.mu.Unlock()
	return nil
}

// get loads a chunk from any tier that has it, and checks the payload.
func (s *store) get(ctx context.Context, o ledger.Owner, back uint64) {
	s.mu.Lock()
	n := s.next - min(back, s.next-1)
	s.mu.Unlock()
	c := tiertest.Chain(n, 1)
	ref, _, err := s.Load(ctx, o, c, 0, tier.All)
	if err != nil {
		return
	}
	if err := tiertest.CheckPayload(c.Key(0), ref.Block.Bytes()); err != nil {
		s.wrong.Add(1)
	}
	s.read.Add(1)
	s.Release(o, ledger.Lease, []tier.Ref{ref})
}

// phase loads the store for a while and returns how long puts took.
func (s *store) phase(t *testing.T, name string, fault *tierfault.Fault) {
	t.Helper()
	s.fault.Store(fault)
	s.took = s.took[:0]
	before := s.Written()[tier.Disk].Written.Chunks
	reads := s.read.Load()
	ctx, cancel := context.WithTimeout(context.Background(), *troubleFor)
	defer cancel()
	var g sync.WaitGroup
	for range troublePutters {
		g.Go(func() {
			o := s.NewOwner()
			defer s.CloseOwner(o)
			for n := 0; n < 5 || ctx.Err() == nil; n++ { // some, however busy the machine
				if err := s.put(context.Background(), o); err != nil {
					t.Errorf("%s: put: %v", name, err)
					return
				}
			}
		})
	}
	for w := range uint64(troubleGetters) {
		g.Go(func() {
			o := s.NewOwner()
			defer s.CloseOwner(o)
			for i := w; ctx.Err() == nil; i += 7 {
				s.get(ctx, o, i*31%600)
			}
		})
	}
	ended := make(chan struct{})
	go func() { g.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(*troubleFor + 2*time.Minute):
		t.Fatalf("%s: a request hangs", name)
	}
	slices.Sort(s.took)
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	t.Logf("%-10s %6d puts, p50 %8v, p99 %8v, longest %8v; %5d reads, %5d written; %d goroutines, heap %d MiB", name, len(s.took),
		s.took[len(s.took)/2], s.took[len(s.took)*99/100], s.took[len(s.took)-1],
		s.read.Load()-reads, s.Written()[tier.Disk].Written.Chunks-before, runtime.NumGoroutine(), mem.HeapInuse>>20)
}

// A disk that fails or hangs under full load is not noticed by who stores: no
// put fails or hangs, no wrong byte is read, nothing piles up, and when the
// trouble ends the disk is used again.
func TestTrouble(t *testing.T) {
	for name, fault := range map[string]tierfault.Fault{
		"EIO":       {Err: syscall.EIO},
		"read-only": {Err: syscall.EROFS},
		"full":      {Err: tier.ErrNoSpace},
		"hang":      {Hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			s.phase(t, "well", nil)
			calm := runtime.NumGoroutine()
			s.phase(t, "in trouble", &fault)
			if n := runtime.NumGoroutine(); n > calm+100 {
				t.Errorf("%d goroutines in trouble, %d before", n, calm)
			}
			s.fault.Store(nil)
			deadline := time.Now().Add(2 * time.Minute)
			o := s.NewOwner()
			defer s.CloseOwner(o)
			for was := s.disk.Stats().Puts; s.disk.Stats().Puts < was+10 || s.Stack.Stats().Tiers[tier.Disk].Off; {
				if err := s.put(context.Background(), o); err != nil {
					t.Fatal(err)
				}
				if time.Now().After(deadline) {
					t.Fatal("the disk works, and is not used")
				}
			}
			s.phase(t, "well again", nil)
			if n := s.wrong.Load(); n > 0 {
				t.Errorf("%d chunks with wrong bytes", n)
			}
			for back := uint64(0); s.read.Load() == 0; back++ {
				if s.get(context.Background(), o, back); back > 1000 {
					t.Fatal("nothing can be read")
				}
			}
		})
	}
}
