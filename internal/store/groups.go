package store

import (
	"maps"
	"slices"
	"sync"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// GroupStats is what the groups of one kind, of all hybrid models together, take in a tier.
type GroupStats struct {
	Kind      string `json:"group"`
	Chunks    int    `json:"chunks"`
	Bytes     int64  `json:"bytes"`
	DeadBytes int64  `json:"dead_bytes"` // of chunks that no usable length needs, or whose client is done with them
}

// groupKinds is the spaces that are groups of hybrid models, and of what kind, as far as
// requests have named them since the start: maxGroups of them. It is safe for concurrent use,
// and a leaf in the order of locks.
type groupKinds struct {
	mu struct {
		sync.Mutex
		of map[key.SpaceID]index.Kind
	}
}

// learn notes the kinds of a family.
func (g *groupKinds) learn(f *Family) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.of == nil || len(g.mu.of) >= maxGroups {
		g.mu.of = make(map[key.SpaceID]index.Kind)
	}
	for i, group := range f.Groups {
		for r := range f.Chains[i] {
			g.mu.of[f.Chains[i][r].Space] = group.Kind
		}
	}
}

// stats sums up what the groups take in each tier that evicts; empty without any.
func (g *groupKinds) stats(ls *levels) map[tier.Place][]GroupStats {
	g.mu.Lock()
	kinds := maps.Clone(g.mu.of)
	g.mu.Unlock()
	ids := slices.Collect(maps.Keys(kinds))
	if len(ids) == 0 {
		return nil
	}
	out := make(map[tier.Place][]GroupStats)
	for _, l := range ls.all {
		if l.Bounded == nil {
			continue
		}
		sums := make([]GroupStats, index.State+1)
		for kind := range sums {
			sums[kind].Kind = index.Kind(kind).String()
		}
		ledger.Occupancies(l.Bounded.Ledger(), ids, func(i int, o ledger.Occupancy) {
			sum := &sums[kinds[ids[i]]]
			sum.Chunks += o.Entries
			sum.Bytes += o.Bytes
			sum.DeadBytes += o.ColdBytes
		})
		out[l.Place] = sums
	}
	return out
}
