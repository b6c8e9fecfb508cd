package store

import (
	"context"
	"slices"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Reached is how much of a prompt was usable, and how far its full groups reached, in
// tokens, when it was asked for and nothing of it was stored yet.
type Reached struct{ Usable, Run int }

// Reached is that now.
func (l *Lookups) Reached(ctx context.Context, f *Family) (Reached, error) {
	m, err := l.Plan(ctx, f, tier.All, f.whole(), nil)
	return Reached{m.End, m.Run}, err
}

// Wanted is, for each group, which of its chunks are worth storing: of one that is not full
// those that the end of the prompt and its junction need (see index.EachResumePoint); of a
// full group all but a last chunk that is shorter, as no usable length has it and no longer prompt goes on from it. Where all
// are it has nil. The family skips nothing.
func (l *Lookups) Wanted(f *Family, at Reached) [][]bool {
	n := f.whole()
	wanted, done := make([][]bool, len(f.Groups)), make([]int, len(f.Groups))
	for g, group := range f.Groups {
		switch n := f.Chains[g][0].Len(); {
		case group.Kind != index.Full:
			wanted[g] = make([]bool, n)
		case f.isMixed() && n > 0 && int(f.Chains[g][0].Tokens[n-1]) != group.Chunk:
			wanted[g] = slices.Repeat([]bool{true}, n)
			wanted[g][n-1] = false
		}
	}
	index.EachResumePoint(min(at.Usable, n), min(at.Run, n), n, func(end int) {
		for g := range wanted {
			from, to := f.Groups[g].Needs(0, end)
			for i := max(from, done[g]); i < to && f.Groups[g].Kind != index.Full; i++ {
				wanted[g][i] = true
			}
			done[g] = max(done[g], to)
		}
		l.declare(f, end)
	})
	return wanted
}

// declare makes a usable length of a prompt known, or one that is about to be, in each
// rank: what only such lengths need goes before anything else where none of these is
// usable any more.
func (l *Lookups) declare(f *Family, n int) {
	if !f.isMixed() || f.Groups.OnlyStates() {
		return
	}
	fresh := false
	for r := range f.Chains[0] {
		if end := f.Chains[0][r].Key(n/f.Groups[0].Chunk - 1); !l.index.declared(end) {
			ends, needs := f.pieces(n, r)
			l.index.declare(ends, needs)
			fresh = true
		}
	}
	if fresh {
		l.index.groups.learn(f)
	}
}

// isMixed reports whether not all groups are full.
func (f *Family) isMixed() bool {
	return slices.ContainsFunc(f.Groups, func(g index.Group) bool { return g.Kind != index.Full })
}

// pieces are what n tokens need of a rank: the last chunks of the full groups, and all of
// the others.
func (f *Family) pieces(n, rank int) (ends, needs []key.Key) {
	for g, group := range f.Groups {
		c := &f.Chains[g][rank]
		from, to := group.Needs(0, n)
		if group.Kind == index.Full {
			ends = append(ends, c.Key(to-1))
			continue
		}
		for i := from; i < to && len(needs) <= index.MaxPieces; i++ {
			needs = append(needs, c.Key(i))
		}
	}
	return ends, needs
}

// declared reports whether a resume point that ends with k is known.
func (x *tierIndex) declared(k key.Key) bool {
	x.lock()
	defer x.mu.Unlock()
	return x.mu.points.Has(k)
}

// declare makes a resume point known, and tells the tiers of its pieces.
func (x *tierIndex) declare(ends, needs []key.Key) {
	x.lock()
	defer x.mu.Unlock()
	x.levels.needed(x.mu.points.Declare(ends, needs, func(k key.Key) bool {
		at, _ := x.mu.tree.Get(k.Space, k.Hash)
		return at != 0
	}))
}

// revive keeps the end of what the full groups have, of which no more is usable, from
// going first: a prompt parts there, perhaps, and its own windows make it usable.
func (l *Lookups) revive(k key.Key) {
	for _, to := range l.levels.all {
		if to.Bounded != nil {
			ledger.Revive(to.Bounded.Ledger(), k)
		}
	}
}

// whole is the tokens of the prompt up to the last of its usable lengths.
func (f *Family) whole() int {
	c, chunk := &f.Chains[0][0], f.Groups[0].Chunk
	n := c.Len()
	if n > 0 && int(c.Tokens[n-1]) != chunk {
		n--
	}
	grid := f.Groups.Grid()
	return n * chunk / grid * grid
}
