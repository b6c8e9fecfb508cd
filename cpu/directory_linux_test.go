package cpu_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/directory"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/manifest"
	"github.com/kvstored/kvstored/internal/pages"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// shown is a tier with a directory, and what a client sees of it: the directory, and the
// arena through a mapping of its own.
type shown struct {
	*cpu.Tier
	arena  *arena.Arena
	to     *directory.Directory
	reader *directory.Reader
	mem    []byte
	bound  sync.Map                // keys that have a bound on their age
	late   atomic.Pointer[key.Key] // unless nil, gets its bound right after it was asked about
}

func newShown(t *testing.T, a *arena.Arena, m *manifest.Manifest) *shown {
	t.Helper()
	bytes := a.Stats().CapacityBytes
	s := &shown{arena: a}
	mem := make([]byte, directory.Bytes(bytes))
	var err error
	if s.to, err = directory.New(mem, bytes); err == nil {
		s.reader, err = directory.Open(mem)
	}
	if err == nil {
		s.mem, err = pages.Map(a.File(), bytes, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pages.Unmap(s.mem) })
	p, err := policy.New("lru", bytes)
	if err != nil {
		t.Fatal(err)
	}
	s.Tier = cpu.New(cpu.Options{
		Arena: a, Directory: s.to, Manifest: m, HighWatermark: 1, LowWatermark: 0.9,
		Ledger:  ledger.New(ledger.Options{CapacityBytes: bytes, Policy: p, PolicyName: "lru"}),
		Passing: s.passing,
	})
	return s
}

func (s *shown) passing(k key.Key) bool {
	_, is := s.bound.Load(k)
	if late := s.late.Load(); late != nil && *late == k {
		s.late.Store(nil)
		s.stamp(k)
	}
	return is
}

// stamp gives a chunk a bound, as the book of ages does.
func (s *shown) stamp(k key.Key) {
	s.bound.Store(k, true)
	s.to.Forget(k)
}

// read copies a chunk without asking; false where that is to be done.
func (s *shown) read(k key.Key, buf []byte) (n int, ok bool, err error) {
	p, ok := s.reader.Find(k)
	if !ok {
		return 0, false, nil
	}
	n = copy(buf, s.mem[p.Offset:p.Offset+int64(p.Size)])
	if !s.reader.Holds(p) {
		return 0, false, nil
	}
	if sum := arena.Checksum(buf[:n]); sum != p.Sum {
		err = fmt.Errorf("chunk %x at %d holds, and sums to %#x, not %#x", k.Hash, p.Offset, sum, p.Sum)
	}
	return n, true, errors.Join(err, tiertest.CheckPayload(k, buf[:n]))
}

// check compares the directory of a tier at rest with its ledger: each slot names a
// resident, proved chunk without a bound, and nearly all of these have one.
func (s *shown) check(t *testing.T, ks []key.Key) (there int) {
	t.Helper()
	lacks := 0
	for _, k := range ks {
		e, st := s.Ledger().Find(k)
		p, found := s.reader.Find(k)
		_, bound := s.bound.Load(k)
		if st != ledger.Resident || bound {
			if found {
				t.Errorf("chunk %x is found; state %d, bound: %t", k.Hash, st, bound)
			}
			continue
		}
		b := s.arena.Block(uint32(e.Value.A))
		switch {
		case b.Doubtful():
			if found {
				t.Errorf("chunk %x is found, and in doubt", k.Hash)
			}
		case !found:
			lacks++
		case p.Offset != b.Offset() || int(p.Size) != b.Len() || p.Sum != b.Sum():
			t.Errorf("chunk %x is found as %+v; it has %d bytes at %d with the sum %#x", k.Hash, p, b.Len(), b.Offset(), b.Sum())
		default:
			there++
		}
	}
	if lacks > 1+there/8 {
		t.Errorf("%d chunks have no slot, %d have", lacks, there)
	}
	return there
}

// churn stores, deletes, holds and bounds a few keys again and again.
func (s *shown) churn(t *testing.T, w uint64, ks []*key.Chain) error {
	r := rand.New(rand.NewPCG(w, 7))
	for range 3000 {
		c := ks[r.IntN(len(ks))]
		k := []key.Key{c.Key(0)}
		switch r.IntN(8) {
		case 0, 1:
			if err := s.Delete(t.Context(), k); err != nil {
				return err
			}
		case 2:
			var refs [1]tier.Ref
			n, _ := s.Hold(ledger.Daemon, ledger.IO, k, refs[:])
			s.Release(ledger.Daemon, ledger.IO, refs[:n])
		default:
			var d drops
			ref, st, err := s.Reserve(t.Context(), fillOf(ledger.Daemon, c, 0, 1+r.IntN(page<<r.IntN(7)), &d))
			if errors.Is(err, tier.ErrNoSpace) || err == nil && st != ledger.Absent {
				continue
			}
			if err != nil {
				return err
			}
			write(ref, c.Key(0))
			s.publish(ref, r.IntN(2) == 0)
		}
	}
	return nil
}

// publish makes a chunk resident, and holds it for a moment where it is held.
func (s *shown) publish(ref tier.Ref, held bool) {
	refs := []tier.Ref{ref}
	s.Publish(refs, false, held)
	if held {
		s.Release(ledger.Daemon, ledger.IO, refs)
	}
}

// beside reads random chunks without asking while do is at work.
func (s *shown) beside(t *testing.T, pick func(*rand.Rand) (key.Key, bool), do func() error) {
	t.Helper()
	var reading errgroup.Group
	var stop atomic.Bool
	var held atomic.Int64
	for n := range uint64(2) {
		reading.Go(func() error {
			r, buf := rand.New(rand.NewPCG(n, 3)), make([]byte, mib)
			for !stop.Load() {
				k, ok := pick(r)
				if !ok {
					continue
				}
				_, ok, err := s.read(k, buf)
				if err != nil {
					return err
				}
				if ok {
					held.Add(1)
				}
			}
			return nil
		})
	}
	err := do()
	stop.Store(true)
	if err := errors.Join(err, reading.Wait()); err != nil {
		t.Error(err)
	}
	if held.Load() == 0 {
		t.Error("no read without asking came to an end")
	}
}

// Readers that do not ask get right bytes or none while chunks come, go, and are moved; at
// the end the directory is what the ledger says, and empty once that is.
func TestDirectoryUnderLoad(t *testing.T) {
	s := newShown(t, newShared(t, 8*mib), nil)
	var all keys
	s.beside(t, all.pick, func() error {
		var writing errgroup.Group
		for w := range uint64(3) {
			writing.Go(func() error { return storeAll(t, s.Tier, w, &all) })
		}
		return writing.Wait()
	})
	if s.Stats().Counters["moved"] == 0 {
		t.Error("nothing was moved")
	}
	if s.check(t, all.known) == 0 {
		t.Error("the directory is empty")
	}
	if err := s.Delete(t.Context(), all.known); err != nil {
		t.Error(err)
	}
	s.check(t, all.known)
}

// The same with few keys, each of which is stored again right after it has gone.
func TestDirectoryOfKeysThatComeBack(t *testing.T) {
	s := newShown(t, newShared(t, 2*mib), nil)
	var chains []*key.Chain
	var ks []key.Key
	for n := range uint64(40) {
		chains = append(chains, tiertest.Chain(n, 1))
		ks = append(ks, chains[n].Key(0))
	}
	s.beside(t, func(r *rand.Rand) (key.Key, bool) { return ks[r.IntN(len(ks))], true }, func() error {
		var writing errgroup.Group
		for w := range uint64(3) {
			writing.Go(func() error { return s.churn(t, w, chains) })
		}
		return writing.Wait()
	})
	s.check(t, ks)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if there := s.check(t, ks); there != 0 {
		t.Errorf("%d chunks are found after the end", there)
	}
}

// A chunk with a bound on its age is never in the directory: neither one that has it when
// it is stored or moved, nor one that gets it meanwhile or later.
func TestDirectoryHasNoBounds(t *testing.T) {
	const block = 32 * page
	s := newShown(t, newShared(t, 16*block), nil)
	bound := tiertest.Chain(1, 1)
	s.stamp(bound.Key(0))
	store(t, s.Tier, 1, 1, block)
	later := store(t, s.Tier, 2, 1, block)
	meanwhile := tiertest.Chain(3, 1).Key(0)
	s.late.Store(&meanwhile)
	store(t, s.Tier, 3, 1, block)
	ks := []key.Key{bound.Key(0), later.Key(0), meanwhile}
	if there := s.check(t, ks); there != 1 {
		t.Fatalf("%d chunks are found", there)
	}
	s.stamp(later.Key(0))
	s.check(t, ks)
	// Both are moved: blocks with holes between make way for one of seven.
	var gone []key.Key
	for n := range uint64(14) {
		c := store(t, s.Tier, 10+n, 1, block)
		if n%2 == 0 {
			gone = append(gone, c.Key(0))
		} else {
			ks = append(ks, c.Key(0))
		}
	}
	if err := s.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	store(t, s.Tier, 99, 1, 7*block)
	if s.Stats().Counters["moved"] == 0 {
		t.Error("nothing was moved")
	}
	s.check(t, ks)
}
