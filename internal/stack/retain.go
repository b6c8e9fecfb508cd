package stack

import (
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Retainer knows which chunks are to be retained, and tells the ledger of a tier that
// has come to have one. It is called without locks, often, and must not wait.
type Retainer interface {
	Stored(k key.Key, bytes int64, in *ledger.Ledger)
}

// RetainBy has the stack ask r of each chunk that comes to be in a tier. Call it
// before Run.
func (d *dram) RetainBy(r Retainer) { d.index.retainer = r }

// Retain gives chunks of a space their ranks in each tier that has them; see
// ledger.Retain.
func (d *dram) Retain(space key.SpaceID, hs []key.Hash, ranks []ledger.Rank) {
	for _, l := range d.levels.all {
		if l.Bounded != nil {
			ledger.Retain(l.Bounded.Ledger(), space, hs, ranks)
		}
	}
}

// SizesOf is the payload bytes of chunks from..to of c, as far as a bounded tier has
// them, and else 0.
func (d *dram) SizesOf(c *key.Chain, from, to int) []int64 {
	sizes := make([]int64, to-from)
	for i := range sizes {
		k := c.Key(from + i)
		for _, l := range d.levels.all {
			if l.Bounded == nil {
				continue
			}
			if e, st := l.Bounded.Ledger().Find(k); st == ledger.Resident {
				sizes[i] = int64(e.Size)
				break
			}
		}
	}
	return sizes
}

// Cool lets the chunks that are a chain's alone go from DRAM first, retained or not.
// They stay where a tier below has them. It does nothing where there is no such tier.
func (s *planning) Cool(c *key.Chain) {
	if s.nearest(c.Space) == nil {
		return
	}
	s.eachPrompt(c, func(hs []key.Hash) { ledger.Cool(s.hot.Ledger(), c.Space, hs) })
}

// retained has the tier p told how chunks that it has now are retained.
func (x *index) retained(p tier.Place, k key.Key, bytes uint32) {
	if l := x.levels.at[p]; x.retainer != nil && l.Bounded != nil {
		x.retainer.Stored(k, int64(bytes), l.Bounded.Ledger())
	}
}
