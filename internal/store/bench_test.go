package store_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// emptyStore is a store of DRAM only.
func emptyStore(b *testing.B, capacity int64) (*store.Store, ledger.Owner) {
	s := store.New(store.Options{Hot: emptyDRAM(b, capacity)})
	return s, s.Leases.NewOwner()
}

func emptyDRAM(b *testing.B, capacity int64) *cpu.Tier {
	a, err := arena.New(arena.Options{CapacityBytes: capacity, HugePages: arena.HugeOff})
	if err != nil {
		b.Fatal(err)
	}
	lru, err := policy.New("lru", capacity)
	if err != nil {
		b.Fatal(err)
	}
	l := ledger.New(ledger.Options{CapacityBytes: capacity, Policy: lru})
	return cpu.New(cpu.Options{Arena: a, Ledger: l, HighWatermark: 1, LowWatermark: 1})
}

// benchStore is a store of DRAM only that holds a chain of n chunks.
func benchStore(b *testing.B, n int) (*store.Store, ledger.Owner) {
	s, o := emptyStore(b, 64<<20)
	c := tiertest.Chain(1, n)
	storeAll(b, s, o, c, 0, n)
	return s, o
}

func BenchmarkMatch1000(b *testing.B) {
	s, _ := benchStore(b, 1000)
	c := tiertest.Chain(1, 1000)
	b.ReportAllocs()
	for b.Loop() {
		if m, err := s.Lookups.Match(b.Context(), c, tier.All); err != nil || m.Chunks != 1000 {
			b.Fatal(m, err)
		}
	}
}

// A hit as the server serves it: match, hold, touch, release.
func BenchmarkLease1000(b *testing.B) {
	s, o := benchStore(b, 1000)
	c := tiertest.Chain(1, 1000)
	refs := make([]tier.Ref, 1000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Lookups.Match(b.Context(), c, tier.All); err != nil {
			b.Fatal(err)
		}
		n, err := s.Leases.Hold(o, ledger.Lease, c, 0, 1000, refs)
		if n != 1000 || err != nil {
			b.Fatal(n, err)
		}
		s.Leases.Touch(c, 0, n)
		s.Leases.Release(o, ledger.Lease, refs[:n])
	}
}

// Chunks that are held each by itself, as a prefetch of keys alone holds them.
func BenchmarkHoldSingles(b *testing.B) {
	const n = 8191
	hot := &forgetful{Hot: emptyDRAM(b, 64<<20)}
	st := store.New(store.Options{Hot: hot})
	o, c := st.Leases.NewOwner(), tiertest.Chain(1, n)
	storeAll(b, st, o, c, 0, n)
	c.Alone = true
	hold := func(b *testing.B, want int) {
		held := 0
		b.ReportAllocs()
		for b.Loop() {
			var s store.Singles
			held = 0
			st.Leases.HoldSingles(&s, o, c, 0, tier.All, func(int) { held++ })
			st.Leases.EndSingles(&s)
		}
		if held != want {
			b.Fatal(held)
		}
	}
	b.Run("all", func(b *testing.B) { hold(b, n) })
	hot.everyOther(c)
	b.Run("every other gone", func(b *testing.B) { hold(b, n/2+1) })
}

// BenchmarkStoreEach is a request that stores chunks one by one, as inline puts
// of single names do: what one costs must not grow with how many there are.
func BenchmarkStoreEach(b *testing.B) {
	for _, n := range []int{1 << 12, 1 << 15} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				s, o := emptyStore(b, int64(n)*8192)
				c := tiertest.Chain(1, n)
				c.Alone, c.Chained = true, false
				b.StartTimer()
				var grants [1]store.Grant
				for i := range n {
					if _, err := s.Filler.Reserve(b.Context(), store.Reservation{Owner: o}, c, i, []uint32{1}, grants[:]); err != nil {
						b.Fatal(err)
					}
					grants[0].Ref.Block.SealSum(1)
					commit(s, c, i, []tier.Ref{grants[0].Ref})
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/chunk")
		})
	}
}

// BenchmarkPlan is a match of four groups, full, two windows and states, with
// one usable length in sixty chunks, over one of a flat chain of as many chunks.
// The last usable length lies late, or there is none: because there are no states, or
// because each is where no window is.
func BenchmarkPlan(b *testing.B) {
	const chunks, every = 8192, 60
	groups := index.Family{
		{Chunk: 16}, {Kind: index.Window, Tokens: 16, Chunk: 16}, {Kind: index.Window, Tokens: 32, Chunk: 16}, {Kind: index.State, Chunk: 16},
	}
	for name, last := range map[string]int{"late": chunks, "none": 0, "apart": chunks} {
		s, o := emptyStore(b, 128<<20)
		f := newFamily(groups, 1, chunks)
		for g := range groups {
			c := &f.Chains[g][0]
			if g == 0 {
				storeAll(b, s, o, c, 0, chunks)
				continue
			}
			for at := every; at < chunks; at += every {
				if g == 3 && at >= last {
					break
				}
				off := 0
				if g == 3 && name == "apart" {
					off = -every / 2
				}
				for i := at - 2 + g%2; i < at; i++ {
					storeAll(b, s, o, c, i+off, i+off+1)
				}
			}
		}
		b.Run("flat/"+name, func(b *testing.B) {
			for b.Loop() {
				if m, err := s.Lookups.Match(b.Context(), &f.Chains[0][0], tier.All); err != nil || m.Chunks != chunks {
					b.Fatal(m, err)
				}
			}
		})
		b.Run("groups/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Lookups.Plan(b.Context(), f, tier.All, 16*chunks, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// storeAll stores chunks from..to of c with 4 KiB each.
func storeAll(b *testing.B, s *store.Store, o ledger.Owner, c *key.Chain, from, to int) {
	b.Helper()
	n := to - from
	grants := make([]store.Grant, n)
	if _, err := s.Filler.Reserve(b.Context(), store.Reservation{Owner: o}, c, from, slices.Repeat([]uint32{4096}, n), grants); err != nil {
		b.Fatal(err)
	}
	refs := make([]tier.Ref, n)
	for i, g := range grants {
		g.Ref.Block.Seal()
		refs[i] = g.Ref
	}
	commit(s, c, from, refs)
}

// BenchmarkEvictGroups evicts 100,000 entries one by one: chunks of flat prompts, or of
// prompts of a hybrid model with the windows that one length of each needs, with what
// each has the index, the table of resume points and the ledger do.
func BenchmarkEvictGroups(b *testing.B) {
	const entries, each, windows = 100_000, 64, 4
	for _, groups := range []bool{false, true} {
		b.Run(map[bool]string{false: "flat", true: "groups"}[groups], func(b *testing.B) {
			n := 0
			for b.Loop() {
				b.StopTimer()
				lru, err := policy.New("lru", 1<<40)
				if err != nil {
					b.Fatal(err)
				}
				l, table, tree := ledger.New(ledger.Options{CapacityBytes: 1 << 40, Policy: lru}), index.NewResumePoints(math.MaxInt), index.NewTree()
				for p := range uint64(entries / each) {
					storePrompt(b, l, table, tree, p, each, groups, windows)
				}
				b.StartTimer()
				for e, ok := l.Evict(); ok; e, ok = l.Evict() {
					l.Free(e.ID)
					tree.Set(e.Key.Space, e.Key.Hash, 0, 1)
					if n++; table.Knows(e.Key.Space) {
						tell(l, table.Changed(e.Key, false))
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/victim")
		})
	}
}

func storePrompt(b *testing.B, l *ledger.Ledger, table *index.ResumePoints, tree *index.Tree, seed uint64, n int, groups bool, windows int) {
	publish := func(k key.Key, parent key.Hash) {
		id, _, err := l.Begin(ledger.Daemon, ledger.Load, k, parent, 4096)
		if err != nil {
			b.Fatal(err)
		}
		l.Publish([]ledger.ID{id}, false)
		if err := tree.Insert(k.Space, parent, k.Hash, 1); err != nil {
			b.Fatal(err)
		}
	}
	c := tiertest.Chain(seed+1, n)
	if groups {
		n -= windows
	}
	for i := range n {
		publish(c.Key(i), c.Parent(i))
	}
	if !groups {
		return
	}
	var needs []key.Key
	for i := n - windows; i < n; i++ {
		k := c.Key(i)
		k.Space[0]++
		publish(k, key.Hash{})
		needs = append(needs, k)
	}
	tell(l, table.Declare([]key.Key{c.Key(n - 1)}, needs, func(key.Key) bool { return true }))
}

func tell(l *ledger.Ledger, told []index.Need) {
	for _, n := range told {
		ledger.Need(l, n.Key, n.Full, n.Needed)
	}
}
