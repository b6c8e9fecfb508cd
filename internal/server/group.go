package server

import (
	"cmp"
	"context"
	"sync"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/prefetch"
	"github.com/kvstored/kvstored/tier"
)

// group is one prompt in every space that a request names: one, or those of
// all ranks of a tensor-parallel group. A chunk is there if all have it.
type group struct {
	stack  *stack.Stack
	search tier.Set
	chains []key.Chain   // equal but for their spaces; nobody changes them
	each   []stack.Match // by rank: what of the chain is known to be there
	rests  []*stack.RemoteScan
	// unasked is why it is not known whether there is more: a shared tier is
	// switched off.
	unasked error
}

// match finds what of the group is there.
func (g *group) match(ctx context.Context) (stack.Match, error) {
	g.each = make([]stack.Match, len(g.chains))
	return g.stack.MatchAll(ctx, g.chains, g.search, g.each)
}

// known is how many chunks of a rank are known to be there, those skipped included.
func (g *group) known(rank int) int { return g.skip() + g.each[rank].Chunks }

func (g *group) ranks() int { return len(g.chains) }
func (g *group) skip() int  { return g.chains[0].Skip }

// more finds out whether there may be more than is known. It returns how many
// chunks there are at most, the skipped ones included.
func (g *group) more() int {
	rests, most := make([]*stack.RemoteScan, len(g.chains)), g.chains[0].Len()
	short := most
	for r := range g.chains {
		if rests[r] = g.stack.ScanRemote(&g.chains[r], &g.each[r], g.search); rests[r] == nil {
			most = min(most, g.known(r))
			if err := g.stack.Unasked(&g.chains[r], &g.each[r], g.search); err != nil {
				g.unasked = err
			}
		}
		short = min(short, g.known(r))
	}
	if most > short {
		g.rests = rests
	}
	return most
}

// chunkBytes is how large the pieces from chunk i on are, skipped ones included: as
// the first of them, or the one before, where their sizes are known; else the most
// that they may be.
func (g *group) chunkBytes(i int) int64 {
	for _, at := range [...]int{i, i - 1} {
		if at < 0 || at >= g.chains[0].Len() {
			continue
		}
		if _, size, known := g.stack.Sum(ledger.Daemon, &g.chains[0], at); known {
			return int64(size)
		}
	}
	return arena.MaxPayload
}

// lanes gives disk and the remote tier a lane each where pieces may come from
// both: the slower tier must not keep the other waiting. A chunk that the index
// does not have yet can only be in the remote tier.
func (g *group) lanes(ctx context.Context, m *stack.Match) (n int, lane func(piece int) int) {
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

// find asks the shared tiers for the rest of each chain, until ctx ends.
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
	case i < g.known(rank):
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
