package server

import (
	"cmp"
	"context"
	"sync"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/prefetch"
	"github.com/kvstored/kvstored/tier"
)

// group is one prompt in every space that a request names: one, or those of
// all ranks of a tensor-parallel group. A chunk is there if all have it.
type group struct {
	stack  *tier.Stack
	search tier.Set
	chains []key.Chain // equal but for their spaces; nobody changes them
	known  []int       // by rank: chunks of the chain that are known to be there, its Skip included
	rests  []*tier.Rest
	// unasked is why it is not known whether there is more: a shared tier is
	// switched off.
	unasked error
}

// ranked returns the chain in its own space and in those of the ranks that
// are named besides.
func (c *session) ranked(chain *key.Chain, ranks wire.U32s) ([]key.Chain, error) {
	chains := make([]key.Chain, 1, 1+ranks.Len())
	chains[0] = *chain
	if ranks.Len() == 0 {
		return chains, nil
	}
	if n := int64(chain.Len()) * int64(1+ranks.Len()); n > key.MaxChunks {
		return nil, refuse(wire.StatusTooLarge, "ranks: %d chunks in %d spaces; use at most %d in all", chain.Len(), 1+ranks.Len(), key.MaxChunks)
	}
	own := c.spaces.of(chain.Space)
	seen := map[key.SpaceID]bool{chain.Space: true}
	for i := range ranks.Len() {
		sp, err := c.space(ranks.At(i))
		switch {
		case err != nil:
			return nil, err
		case own == nil || !own.builder.SameChains(sp.builder):
			return nil, refuse(wire.StatusBadRequest, "ranks: a prompt has other hashes in space %d; method, chunk tokens and salt must be equal", ranks.At(i))
		case seen[sp.info.ID]:
			return nil, refuse(wire.StatusBadRequest, "ranks: space %d is named twice", ranks.At(i))
		}
		seen[sp.info.ID] = true
		rank := *chain
		rank.Space = sp.info.ID
		chains = append(chains, rank)
	}
	return chains, nil
}

// match finds what of the group is there.
func (g *group) match(ctx context.Context) (tier.Match, error) {
	each := make([]tier.Match, len(g.chains))
	m, err := g.stack.MatchAll(ctx, g.chains, g.search, each)
	if err != nil {
		return m, err
	}
	g.known = make([]int, len(each))
	for r := range each {
		g.known[r] = g.skip() + each[r].Chunks
	}
	return m, nil
}

func (g *group) ranks() int { return len(g.chains) }
func (g *group) skip() int  { return g.chains[0].Skip }

// more finds out whether there may be more than is known. It returns how many
// chunks there are at most, the skipped ones included.
func (g *group) more() int {
	rests, most := make([]*tier.Rest, len(g.chains)), g.chains[0].Len()
	short := most
	for r := range g.chains {
		m := tier.Match{Count: tier.Count{Chunks: g.known[r] - g.skip()}}
		if rests[r] = g.stack.Rest(&g.chains[r], &m, g.search); rests[r] == nil {
			most = min(most, g.known[r])
			if err := g.stack.Unasked(&g.chains[r], &m, g.search); err != nil {
				g.unasked = err
			}
		}
		short = min(short, g.known[r])
	}
	if most > short {
		g.rests = rests
	}
	return most
}

// lanes says which pieces come from the remote tier, where others come from
// disk: the slower of the two must not keep the other waiting. What is not
// known yet can only be there.
func (g *group) lanes(ctx context.Context, m *tier.Match) (n int, lane func(piece int) int) {
	if m.In[tier.Disk].Chunks == 0 || m.In[tier.Remote].Chunks == 0 && g.rests == nil {
		return 1, nil
	}
	places, err := g.stack.PlacesOf(ctx, g.chains, g.search, m.Chunks)
	if err != nil {
		return 1, nil
	}
	return 2, func(piece int) int {
		if i := piece / g.ranks(); i < len(places) && places[i] != tier.Remote {
			return 0
		}
		return 1
	}
}

// find asks for what is not known until ctx ends.
func (g *group) find(ctx context.Context) (done func()) {
	ctx, stop := context.WithCancel(ctx)
	var finding sync.WaitGroup
	for _, r := range g.rests {
		if r != nil {
			finding.Go(func() { r.Find(ctx) })
		}
	}
	return func() {
		stop()
		finding.Wait()
	}
}

// exists waits until it is certain whether a rank has chunk i: nil if it does,
// prefetch.ErrEnd if not, another error where a tier does not say.
func (g *group) exists(ctx context.Context, rank, i int) error {
	switch {
	case i < g.known[rank]:
		return nil
	case g.rests == nil || g.rests[rank] == nil:
		return cmp.Or(g.unasked, prefetch.ErrEnd)
	case g.rests[rank].Reach(ctx, i):
		return nil
	}
	return cmp.Or(g.rests[rank].Err(), prefetch.ErrEnd)
}

// touch counts one use of chunks from..to behind the skipped ones.
func (g *group) touch(from, to int) {
	for r := range g.chains {
		g.stack.Touch(&g.chains[r], g.skip()+from, g.skip()+to)
	}
}
