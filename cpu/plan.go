package cpu

import (
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// Plans implements tier.Planner.
func (t *Tier) Plans() bool { return t.ledger.Plans() }

// Announce implements tier.Planner.
func (t *Tier) Announce(r *ledger.Request) (learn bool) { return t.ledger.Announce(r) }

// goal is what is evicted down to. A policy that plans chooses between what
// comes and what would go for it: one for the other, not some ahead of time.
func (t *Tier) goal() int64 {
	if t.ledger.Plans() {
		return t.high.Load()
	}
	return t.low.Load()
}

// Worth implements tier.Planner. There is room up to the high watermark: what
// is above it will have something evicted.
func (t *Tier) Worth(space key.SpaceID, parent key.Hash, hs []key.Hash, size uint32, twice bool) int {
	room := (t.high.Load() - t.arena.Stats().UsedBytes) / occupied(max(size, 1))
	return t.ledger.Worth(space, parent, hs, size, int(room), twice)
}

// Cool implements tier.Planner.
func (t *Tier) Cool(space key.SpaceID, hs []key.Hash) { t.ledger.Cool(space, hs) }

// Learn implements tier.Planner.
func (t *Tier) Learn() { t.ledger.Learn() }

// Learned implements tier.Planner.
func (t *Tier) Learned() ([]byte, error) { return t.ledger.Learned() }

// Teach implements tier.Planner.
func (t *Tier) Teach(data []byte) error { return t.ledger.Teach(data) }
