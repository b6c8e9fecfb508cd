package stack

import (
	"context"

	"github.com/kvstored/kvstored/internal/hybrid"
	"github.com/kvstored/kvstored/tier"
)

// Wanted is, for each group that is not full, which of its chunks are worth storing: what
// the end of the prompt, its junction and each multiple of every tokens need (see
// hybrid.Boundaries; 0: none of these). Of a full group all are, and it has nil. The
// family skips nothing.
func (l lookups) Wanted(ctx context.Context, f *Family, every int) ([][]bool, error) {
	grid, n := f.Groups.Grid(), f.whole()
	m, err := l.MatchFamily(ctx, f, tier.All, n, nil)
	if err != nil {
		return nil, err
	}
	wanted, done := make([][]bool, len(f.Groups)), make([]int, len(f.Groups))
	for g, group := range f.Groups {
		if group.Kind != hybrid.Full {
			wanted[g] = make([]bool, f.Chains[g][0].Len())
		}
	}
	hybrid.Boundaries(m.Tokens, m.Run, n, (every+grid-1)/grid*grid, func(end int) {
		for g := range wanted {
			from, to := f.Groups[g].Needs(0, end)
			for i := max(from, done[g]); i < to && wanted[g] != nil; i++ {
				wanted[g][i] = true
			}
			done[g] = max(done[g], to)
		}
	})
	return wanted, nil
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
