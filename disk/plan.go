package disk

import (
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

var _ tier.Planner = (*Tier)(nil)

// Plans implements tier.Planner.
func (t *Tier) Plans() bool { return t.ledger.Plans() }

// Announce implements tier.Planner.
func (t *Tier) Announce(r *ledger.Request) (learn bool) { return t.ledger.Announce(r) }

// Worth implements tier.Planner. There is room up to the high watermark: what
// is above it will have something evicted. While recovery runs nothing is.
func (t *Tier) Worth(space key.SpaceID, parent key.Hash, hs []key.Hash, size uint32, twice bool) int {
	if t.scan.active.Load() {
		return len(hs)
	}
	n := int64(max(size, 1))
	room := -t.excess(0, false) / extentBytes(n)
	if n <= t.o.InlineMax {
		room = -t.share.short(0) / (filesWorth * held(n, true))
	}
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
