package stack_test

import (
	"fmt"
	"testing"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// emptyStack is a stack of DRAM only.
func emptyStack(b *testing.B, capacity int64) (*stack.Stack, ledger.Owner) {
	a, err := arena.New(arena.Options{CapacityBytes: capacity, HugePages: arena.HugeOff})
	if err != nil {
		b.Fatal(err)
	}
	lru, err := policy.New("lru", capacity)
	if err != nil {
		b.Fatal(err)
	}
	l := ledger.New(ledger.Options{CapacityBytes: capacity, Policy: lru})
	s := stack.NewStack(stack.Options{Hot: cpu.New(cpu.Options{Arena: a, Ledger: l, HighWatermark: 1, LowWatermark: 1})})
	return s, s.NewOwner()
}

// benchStack is a stack of DRAM only that holds a chain of n chunks.
func benchStack(b *testing.B, n int) (*stack.Stack, ledger.Owner) {
	s, o := emptyStack(b, 64<<20)
	c := tiertest.Chain(1, n)
	sizes := make([]uint32, n)
	for i := range sizes {
		sizes[i] = 4096
	}
	grants := make([]stack.Grant, n)
	if _, err := s.Reserve(b.Context(), o, c, 0, sizes, grants, false); err != nil {
		b.Fatal(err)
	}
	refs := make([]tier.Ref, n)
	for i, g := range grants {
		g.Ref.Block.Seal()
		refs[i] = g.Ref
	}
	s.Commit(c, 0, refs)
	return s, o
}

func BenchmarkMatch1000(b *testing.B) {
	s, _ := benchStack(b, 1000)
	c := tiertest.Chain(1, 1000)
	b.ReportAllocs()
	for b.Loop() {
		if m, err := s.Match(b.Context(), c, tier.All); err != nil || m.Chunks != 1000 {
			b.Fatal(m, err)
		}
	}
}

// A hit as the server serves it: match, hold, touch, release.
func BenchmarkLease1000(b *testing.B) {
	s, o := benchStack(b, 1000)
	c := tiertest.Chain(1, 1000)
	refs := make([]tier.Ref, 1000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Match(b.Context(), c, tier.All); err != nil {
			b.Fatal(err)
		}
		n, err := s.Hold(o, ledger.Lease, c, 0, 1000, refs)
		if n != 1000 || err != nil {
			b.Fatal(n, err)
		}
		s.Touch(c, 0, n)
		s.Release(o, ledger.Lease, refs[:n])
	}
}

// BenchmarkStoreEach is a request that stores chunks one by one, as inline puts
// of single names do: what one costs must not grow with how many there are.
func BenchmarkStoreEach(b *testing.B) {
	for _, n := range []int{1 << 12, 1 << 15} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				s, o := emptyStack(b, int64(n)*8192)
				c := tiertest.Chain(1, n)
				c.Alone, c.Chained = true, false
				b.StartTimer()
				var grants [1]stack.Grant
				for i := range n {
					if _, err := s.Reserve(b.Context(), o, c, i, []uint32{1}, grants[:], false); err != nil {
						b.Fatal(err)
					}
					grants[0].Ref.Block.SealSum(1)
					s.Commit(c, i, []tier.Ref{grants[0].Ref})
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/chunk")
		})
	}
}
