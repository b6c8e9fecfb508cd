package store_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

var (
	groupOperations = flag.Int("groups.ops", 1200, "steps of TestDeadIsTheDefinition, in all")
	groupSeed       = flag.Uint64("groups.seed", 5, "where its chance begins")
)

// forest is prompts of a hybrid model that share beginnings, in a store, with the
// resume points that stores and lookups have declared.
type forest struct {
	*rig
	rng    *rand.Rand
	groups index.Family
	ranks  int
	points map[key.Key]*declared // by the last chunk of the first full group of a rank
	pieces map[key.Key]*followed // of these
}

type declared struct {
	ends, needs []*followed
	lost        bool
}

// followed is a chunk that resume points have.
type followed struct {
	key       key.Key
	was, here bool // somewhere, after the step before the last, and after the last
	needed    bool // while check looks at it
}

func (f *forest) piece(k key.Key) *followed {
	if f.pieces[k] == nil {
		f.pieces[k] = &followed{key: k}
	}
	return f.pieces[k]
}

// prompt is a prompt of some chunks of the grid, of one of a few roots, that leaves a common way
// somewhere.
func (f *forest) prompt() *store.Family {
	grid := f.groups.Grid()
	steps, leaves, other := 1+f.rng.IntN(10), []int{0, 2, 5, 8}[f.rng.IntN(4)], f.rng.Uint64N(3)
	p := newFamily(f.groups, f.ranks, steps)
	root := f.rng.Uint64N(2)
	for g := range p.Chains {
		c, size := &p.Chains[g][0], f.groups[g].Chunk // whose hashes the other ranks share
		for i := range c.Hashes {
			c.Hashes[i] = key.Hash{byte(i + 1), byte(size), byte(root + 1)}
			if i*size/grid >= leaves {
				c.Hashes[i][3], c.Hashes[i][4] = byte(other+1), byte(leaves+1) // it follows no other
			}
		}
	}
	return p
}

func (f *forest) declare(p *store.Family, n int) {
	for rank := range f.ranks {
		f.declareOne(p, n, rank)
	}
}

func (f *forest) declareOne(p *store.Family, n, rank int) {
	b, first := new(declared), p.Chains[0][rank].Key(n/f.groups[0].Chunk-1)
	if f.points[first] != nil {
		return
	}
	for g, group := range f.groups {
		from, to := group.Needs(0, n)
		for i := from; i < to; i++ {
			if k := p.Chains[g][rank].Key(i); group.Kind != index.Full {
				b.needs = append(b.needs, f.piece(k))
			} else if i == to-1 {
				b.ends = append(b.ends, f.piece(k))
			}
		}
	}
	f.points[first] = b
}

func (f *forest) step() {
	p := f.prompt()
	total := p.Chains[0][0].Len() * f.groups[0].Chunk
	m, err := f.Lookups.Plan(f.t.Context(), p, tier.All, total, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	if m.End > 0 {
		f.declare(p, m.End)
	}
	f.look(p, total)
	f.follow() // the pieces of what was declared, before one of them goes
	g := f.rng.IntN(len(f.groups))
	c := &p.Chains[g][f.rng.IntN(f.ranks)]
	switch f.rng.IntN(6) {
	case 0:
		if _, err := f.Remover.Delete(f.t.Context(), []key.Key{c.Key(f.rng.IntN(c.Len()))}); err != nil {
			f.t.Fatal(err)
		}
	case 1: // dropped from DRAM, and perhaps there below
		i := f.rng.IntN(c.Len())
		if err := f.hot.Delete(f.t.Context(), []key.Key{c.Key(i)}); err != nil {
			f.t.Fatal(err)
		}
		_, _ = f.Leases.Hold(0, 0, c, i, i+1, make([]tier.Ref, 1)) // the index is told
	default:
		f.store(p, m)
	}
	f.follow()
}

// look compares what a part of the tiers has of a prompt, behind some that are skipped and
// with a piece that counts as lost, with the definition.
func (f *forest) look(p *store.Family, total int) {
	search, lost := tier.All, map[store.Piece]struct{}{}
	if f.rng.IntN(3) == 0 {
		search = tier.Of(tier.CPU)
	}
	if f.rng.IntN(3) == 0 {
		g := f.rng.IntN(len(f.groups))
		lost[store.Piece{Group: g, Rank: f.rng.IntN(f.ranks), Chunk: f.rng.IntN(p.Chains[g][0].Len())}] = struct{}{}
	}
	if f.rng.IntN(2) == 0 {
		p.Skip = f.rng.IntN(total)
	}
	for g := range p.Chains {
		for rank := range f.ranks {
			p.Chains[g][rank].Skip = p.Skip / f.groups[g].Chunk
		}
	}
	if m := f.checkFamily(p, search, total-f.rng.IntN(f.groups.Grid()), lost); m.End > p.Skip {
		f.declare(p, m.End)
	}
	p.Skip = 0
	for g := range p.Chains {
		for rank := range f.ranks {
			p.Chains[g][rank].Skip = 0
		}
	}
}

// store stores what the groups want of a prompt, in all ranks or all but one.
func (f *forest) store(p *store.Family, m store.Plan) {
	at, err := f.Lookups.Reached(f.t.Context(), p)
	if err != nil {
		f.t.Fatal(err)
	}
	wanted := f.Lookups.Wanted(p, at)
	grid := f.groups.Grid()
	total := p.Chains[0][0].Len() * f.groups[0].Chunk / grid * grid
	index.EachResumePoint(m.End, m.Run, total, func(end int) { f.declare(p, end) })
	f.follow()
	without := f.rng.IntN(4 * f.ranks)
	for g := range wanted {
		for rank := range f.ranks {
			c := &p.Chains[g][rank]
			for i := range c.Len() {
				if rank != without && (wanted[g] == nil || wanted[g][i]) {
					f.storeMissing(c, i, i+1)
					if at := f.pieces[c.Key(i)]; at != nil {
						at.here = true
					}
					f.follow()
				}
			}
		}
	}
}

// follow notes which resume points have lost a piece in the last step.
func (f *forest) follow() {
	synctest.Wait()
	for k, at := range f.pieces {
		at.was, at.here = at.here, f.Where(k) != 0
	}
	for _, b := range f.points {
		all := true
		for _, some := range [][]*followed{b.ends, b.needs} {
			for _, at := range some {
				b.lost = b.lost || at.was && !at.here
				all = all && at.here
			}
		}
		b.lost = b.lost && !all
	}
}

// check compares the chunks that go first in DRAM with the definition: a window or a state that is
// in the need of no resume point, and a full chunk that ends none, once one ended there.
func (f *forest) check() {
	f.t.Helper()
	for _, at := range f.pieces {
		at.needed = false
	}
	for _, b := range f.points {
		for _, at := range slices.Concat(b.ends, b.needs) {
			at.needed = at.needed || !b.lost
		}
	}
	l := f.hot.Ledger()
	for _, b := range f.points {
		for _, at := range b.needs {
			if e, st := l.Find(at.key); st == ledger.Resident && e.Cold == at.needed {
				f.t.Fatalf("chunk %x of space %x goes first: %v; needed: %v", at.key.Hash[:4], at.key.Space[:2], e.Cold, at.needed)
			}
		}
		for _, at := range b.ends {
			if e, st := l.Find(at.key); st == ledger.Resident && e.Cold && at.needed {
				f.t.Fatalf("the end %x of space %x goes first, and is needed", at.key.Hash[:4], at.key.Space[:2])
			}
		}
	}
}

// TestProbeDeclaresNothing: a length that is only looked at is no resume point.
func TestProbeDeclaresNothing(t *testing.T) {
	r := newRig(t, options{})
	f := newFamily(index.Family{{Chunk: 16}, {Kind: index.State, Chunk: 16}}, 1, 8)
	for g := range f.Chains {
		r.storeMissing(&f.Chains[g][0], 0, 8)
	}
	before := r.Operator.Stats().ResumePoints
	m, err := r.Lookups.Probe(t.Context(), f, tier.All, 64, nil)
	if err != nil || m.End != 64 {
		t.Fatalf("%d tokens, %v", m.End, err)
	}
	if got := r.Operator.Stats().ResumePoints; got != before {
		t.Errorf("after a look: %+v, before %+v", got, before)
	}
	if _, err := r.Lookups.Plan(t.Context(), f, tier.All, 64, nil); err != nil {
		t.Fatal(err)
	}
	if got := r.Operator.Stats().ResumePoints; got == before {
		t.Errorf("after a match: %+v", got)
	}
}

// After each step, in each state of the tiers, chunks go first that no usable prefix needs,
// and a match is the longest usable prefix with its needs.
func TestDeadIsTheDefinition(t *testing.T) {
	families := []index.Family{
		{{Chunk: 16}},
		{{Chunk: 16}, {Kind: index.Window, Tokens: 17, Chunk: 16}, {Kind: index.Window, Tokens: 80, Chunk: 16}, {Kind: index.Local, Tokens: 48, Chunk: 16}, {Kind: index.State, Chunk: 16}},
		{{Chunk: 16}, {Kind: index.State, Chunk: 16}},
		{{Chunk: 16}, {Kind: index.Window, Tokens: 40, Chunk: 16}},
		{{Chunk: 32}, {Kind: index.Window, Tokens: 50, Chunk: 16}, {Kind: index.State, Chunk: 16}, {Chunk: 16}},
		{{Chunk: 16}, {Kind: index.Local, Tokens: 64, Chunk: 16}, {Kind: index.State, Chunk: 64}, {Kind: index.Window, Tokens: 1, Chunk: 32}},
	}
	for i, groups := range families {
		for n := range 4 {
			ranks, lone := 1+n/2, n%2 == 0
			t.Run(fmt.Sprint(groups, ranks, lone), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					room := int64(ranks) * kib
					o := options{capacity: 160 * room, lone: lone}
					if !lone {
						o.disk = tiertest.NewMemory("disk", 320*room)
					}
					f := &forest{
						rig: newRig(t, o), rng: rand.New(rand.NewPCG(uint64(i), *groupSeed)), groups: groups, ranks: ranks,
						points: make(map[key.Key]*declared), pieces: make(map[key.Key]*followed),
					}
					for range *groupOperations / len(families) / 4 {
						f.step()
						f.check()
					}
				})
			})
		}
	}
}
