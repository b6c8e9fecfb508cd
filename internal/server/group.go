package server

import (
	"cmp"
	"context"
	"sync"

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

func (g *group) ranks() int { return len(g.chains) }
func (g *group) skip() int  { return g.chains[0].Skip }

// more finds out whether there may be more than is known. It returns how many
// chunks there are at most, the skipped ones included.
func (g *group) more() int {
	rests, most := make([]*stack.RemoteScan, len(g.chains)), g.chains[0].Len()
	short := most
	for r := range g.chains {
		known := g.skip() + g.each[r].Chunks
		rest, err := g.stack.ScanRemote(&g.chains[r], known, g.search)
		if rests[r] = rest; rest == nil {
			most, g.unasked = min(most, known), cmp.Or(err, g.unasked)
		}
		short = min(short, known)
	}
	if most > short {
		g.rests = rests
	}
	return most
}

// sizeAt is how large the pieces of c from chunk i on are, skipped ones included: as
// the first of them, or the one before, where their sizes are known; else unknown.
func (g *group) sizeAt(c *key.Chain, i int, unknown int64) int64 {
	for _, at := range [...]int{i, i - 1} {
		if at < 0 || at >= c.Len() {
			continue
		}
		if _, size, known := g.stack.Sum(ledger.Daemon, c, at); known {
			return int64(size)
		}
	}
	return unknown
}

// lanes gives disk and the remote tier a lane each where pieces may come from both. A chunk
// that the index does not have yet can only be in the remote tier.
func (g *group) lanes(ctx context.Context, m *stack.Match) (n int, lane func(piece int) int) {
	if m.In[tier.Disk].Chunks == 0 || m.In[tier.Remote].Chunks == 0 && g.rests == nil {
		return 1, nil
	}
	places, err := g.stack.PlacesOf(ctx, g.chains, g.search, m.Chunks)
	if err != nil {
		return 1, nil
	}
	return lanesOf(func(piece int) bool {
		i := piece / g.ranks()
		return i >= len(places) || places[i] == tier.Remote
	})
}

// lanesOf is two lanes, the second one for pieces that are far: the slower tier must not
// keep the other waiting.
func lanesOf(far func(piece int) bool) (n int, lane func(piece int) int) {
	return 2, func(piece int) int {
		if far(piece) {
			return 1
		}
		return 0
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
	if g.rests == nil || g.rests[rank] == nil || g.rests[rank].Reach(ctx, i) { // without a scan all is known
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
