package stack

import (
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/lean"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
)

// depths is how deep in a prompt a token takes twice as long to compute as the first
// one, by space, and which tiers want to know.
type depths struct {
	tiers atomic.Uint32 // a tier.Set: those that rank chunks by what they take to compute
	mu    struct {
		sync.RWMutex
		spaces map[key.SpaceID]spaceDepth
		peak   int // of spaces
	}
}

// spaceDepth is the depth of a space that so many clients have open.
type spaceDepth struct{ open, tokens int }

// begin notes that one client more has a space open, of so many tokens.
func (d *depths) begin(id key.SpaceID, tokens int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.spaces == nil {
		d.mu.spaces = make(map[key.SpaceID]spaceDepth)
	}
	d.mu.spaces[id] = spaceDepth{d.mu.spaces[id].open + 1, tokens}
}

// end ends what begin began.
func (d *depths) end(id key.SpaceID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sp := d.mu.spaces[id]
	if sp.open--; sp.open > 0 {
		d.mu.spaces[id] = sp
	} else {
		lean.Delete(&d.mu.spaces, id, &d.mu.peak)
	}
}

// change replaces the depth of a space that is open.
func (d *depths) change(id key.SpaceID, tokens int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if sp, ok := d.mu.spaces[id]; ok {
		d.mu.spaces[id] = spaceDepth{sp.open, tokens}
	}
}

// rank has the tiers of a set rank by what chunks take to compute, and no other.
func (d *depths) rank(by tier.Set) { d.tiers.Store(uint32(by)) }

// of is the depth that a tier is to be told for a prompt of a space, of which the client
// says that it is said, 0 for nothing; 0 where the tier has no use for it.
func (d *depths) of(p tier.Place, id key.SpaceID, said int) int {
	switch {
	case !tier.Set(d.tiers.Load()).Has(p):
		return 0
	case said > 0:
		return said
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	if sp := d.mu.spaces[id]; sp.tokens > 0 {
		return sp.tokens
	}
	return policy.DefaultPrefillDepth
}
