package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// newFamily is a prompt of some steps of the grid in spaces of its own.
func newFamily(groups index.Family, ranks, steps int) *store.Family {
	f, shared := &store.Family{Groups: groups}, make(map[int]*key.Chain)
	for g, group := range groups {
		if shared[group.Chunk] == nil {
			shared[group.Chunk] = tiertest.Chain(uint64(group.Chunk), steps*groups.Grid()/group.Chunk)
		}
		c := *shared[group.Chunk]
		for i := range c.Tokens {
			c.Tokens[i] = uint32(group.Chunk)
		}
		c.Alone = group.Kind != index.Full
		var chains []key.Chain
		for r := range ranks {
			c.Space[0], c.Space[1] = byte(g+1), byte(r)
			chains = append(chains, c)
		}
		f.Chains = append(f.Chains, chains)
	}
	return f
}

// there is where a piece is, the farthest over the ranks, or false.
func (r *rig) there(f *store.Family, g, i int, search tier.Set, lost map[store.Piece]struct{}) (far tier.Place, ok bool) {
	for rank := range f.Chains[g] {
		c := &f.Chains[g][rank]
		at := r.Where(c.Key(i)) & search
		if _, gone := lost[store.Piece{Group: g, Rank: rank, Chunk: i}]; gone || at == 0 {
			return 0, false
		}
		if !at.Has(tier.CPU) {
			far = tier.Disk
		}
	}
	return far, true
}

// naive is the definition: the longest n at which the need of every group is there.
func (r *rig) naive(f *store.Family, search tier.Set, most int, lost map[store.Piece]struct{}) (m store.Plan) {
	grid := f.Groups.Grid()
	m.End, m.Run = f.Skip, f.Skip
	usable := func(g, n int) bool {
		from, to := f.Groups[g].Needs(f.Skip, n)
		for i := from; i < to; i++ {
			if _, ok := r.there(f, g, i, search, lost); !ok {
				return false
			}
		}
		return true
	}
	for n := grid; n <= most; n += grid {
		full, all := true, true
		for g, group := range f.Groups {
			if n > f.Skip && !usable(g, n) {
				full, all = full && group.Kind != index.Full, false
			}
		}
		if full && n > f.Skip {
			m.Run = n
		}
		if all && n > f.Skip {
			m.End = n
		}
	}
	for g := range f.Groups {
		if m.Run > f.Skip && !usable(g, m.Run) {
			m.Lacks |= 1 << g
		}
	}
	return m
}

// Plan is the definition, in any state of the tiers: after stores, evictions
// and moves, for several ranks and chunk lengths, in a part of the tiers.
func TestPlanIsTheDefinition(t *testing.T) {
	families := []index.Family{
		{{Chunk: 16}},
		{{Chunk: 16}, {Kind: index.State, Chunk: 16}},
		{{Chunk: 16}, {Kind: index.Window, Tokens: 64, Chunk: 16}, {Kind: index.Window, Tokens: 17, Chunk: 16}},
		{{Chunk: 32}, {Kind: index.Window, Tokens: 50, Chunk: 16}, {Kind: index.State, Chunk: 16}, {Chunk: 16}},
		{{Chunk: 16}, {Kind: index.Local, Tokens: 64, Chunk: 16}, {Kind: index.State, Chunk: 64}, {Kind: index.Window, Tokens: 1, Chunk: 32}, {Kind: index.Local, Tokens: 24, Chunk: 16}},
	}
	for _, groups := range families {
		for ranks := 1; ranks <= 2; ranks++ {
			t.Run(fmt.Sprint(groups, ranks), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { playFamily(t, newFamily(groups, ranks, 8)) })
			})
		}
	}
}

func playFamily(t *testing.T, f *store.Family) {
	if err := f.Groups.Check(); err != nil {
		t.Fatal(err)
	}
	r, rng := newRig(t, options{}), rand.New(rand.NewPCG(7, uint64(len(f.Groups))))
	total := 8 * f.Groups.Grid()
	for range 300 {
		g := rng.IntN(len(f.Groups))
		c := &f.Chains[g][rng.IntN(len(f.Chains[g]))]
		from := rng.IntN(c.Len())
		if !c.Alone {
			from = 0
		}
		to := from + 1 + rng.IntN(c.Len()-from)
		switch keys := tiertest.Keys(c, from, to); rng.IntN(8) {
		case 0:
			if _, err := r.Remover.Delete(t.Context(), keys[len(keys)-1:]); err != nil {
				t.Fatal(err)
			}
		case 1: // only below
			r.flush()
			if err := r.hot.Delete(t.Context(), keys[len(keys)-1:]); err != nil {
				t.Fatal(err)
			}
			_, _ = r.Leases.Hold(0, 0, c, to-1, to, make([]tier.Ref, 1)) // the index is told
		default:
			r.storeMissing(c, from, to)
		}
		f.Skip = 0
		if rng.IntN(2) == 0 {
			f.Skip = rng.IntN(total)
		}
		search, most := tier.All, total-rng.IntN(f.Groups.Grid())
		if rng.IntN(3) == 0 {
			search = tier.Of(tier.CPU)
		}
		lost := map[store.Piece]struct{}{}
		if rng.IntN(3) == 0 {
			g := rng.IntN(len(f.Groups))
			lost[store.Piece{Group: g, Rank: 0, Chunk: rng.IntN(f.Chains[g][0].Len())}] = struct{}{}
		}
		r.checkFamily(f, search, most, lost)
		r.checkPlain(f, search)
	}
}

// checkPlain compares the plan of a plain prompt with that of a family of its one group.
func (r *rig) checkPlain(f *store.Family, search tier.Set) {
	r.t.Helper()
	skip := f.Skip / f.Groups[0].Chunk
	alone := &store.Family{Groups: f.Groups[:1], Chains: f.Chains[:1], Skip: skip * f.Groups[0].Chunk}
	want := r.checkFamily(alone, search, f.Chains[0][0].Len()*f.Groups[0].Chunk, nil)
	ranks := slices.Clone(f.Chains[0])
	for i := range ranks {
		ranks[i].Skip = skip
	}
	m, err := r.Lookups.Plan(r.t.Context(), store.Plain(ranks), search, 0, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	need, other := &m.Needs[0], &want.Needs[0]
	if m.End != want.End || m.Run != want.Run || m.Next != want.Next || m.Count != want.Count || m.In != want.In || need.In != other.In {
		r.t.Fatalf("plain, skip %d: %+v; want %+v", skip, m, want)
	}
	hot := 0
	for i := need.From; i < need.To; i++ {
		if need.At(i) != other.At(i) {
			r.t.Fatalf("plain: chunk %d at %b; want %b", i, need.At(i), other.At(i))
		}
		if hot == i-need.From && need.At(i) == tier.Of(tier.CPU) {
			hot++
		}
	}
	if m.Hot != hot {
		r.t.Fatalf("plain: %d chunks at the start in DRAM; want %d", m.Hot, hot)
	}
	if len(ranks) > 1 && len(m.Runs) != len(ranks) {
		r.t.Fatalf("plain: %d of %d ranks say how far they reach", len(m.Runs), len(ranks))
	}
	for rank, n := range m.Runs {
		one, err := r.Lookups.Match(r.t.Context(), &ranks[rank], search)
		if err != nil || n != skip+one.Chunks {
			r.t.Fatalf("plain: rank %d has chunks up to %d; want %d, %v", rank, n, skip+one.Chunks, err)
		}
	}
}

// storeMissing stores those of chunks from..to that are not there.
func (r *rig) storeMissing(c *key.Chain, from, to int) {
	r.t.Helper()
	for i := from; i < to; i++ {
		if r.Where(c.Key(i)) == 0 {
			r.put(c, i, i+1, 4*kib)
		}
	}
}

func (r *rig) checkFamily(f *store.Family, search tier.Set, most int, lost map[store.Piece]struct{}) store.Plan {
	r.t.Helper()
	m, err := r.Lookups.Plan(r.t.Context(), f, search, most, lost)
	if err != nil {
		r.t.Fatal(err)
	}
	want := r.naive(f, search, most, lost)
	if m.End != want.End || m.Run != want.Run || m.Lacks != want.Lacks {
		r.t.Fatalf("%+v, skip %d: %d tokens of %d, lacks %b; want %d of %d, %b", f.Groups, f.Skip, m.End, m.Run, m.Lacks, want.End, want.Run, want.Lacks)
	}
	for g, need := range m.Needs {
		from, to := 0, 0
		if m.End > f.Skip {
			from, to = f.Groups[g].Needs(f.Skip, m.End)
		}
		if need.From != from || need.To != to {
			r.t.Fatalf("group %d at %d: %+v; want %d to %d", g, m.End, need, from, to)
		}
		var in [tier.Places]int
		for i := from; i < to; i++ {
			p, ok := r.there(f, g, i, search, lost)
			if !ok || need.At(i) != tier.Of(p) {
				r.t.Fatalf("group %d, chunk %d at %b; want %v, %v", g, i, need.At(i), p, ok)
			}
			in[p]++
		}
		if in != need.In {
			r.t.Fatalf("group %d: %v; want %v", g, need.In, in)
		}
	}
	return m
}
