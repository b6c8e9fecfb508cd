package cpu

import (
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

var _ tier.Upper = (*Tier)(nil)

// StandOn implements tier.Upper.
func (t *Tier) StandOn(works func() tier.Set) {
	t.ledger.StandOn(func() ledger.Below { return ledger.Below(works()) })
}

// Below implements tier.Upper.
func (t *Tier) Below(k key.Key, tiers tier.Set, have bool) {
	t.ledger.SetBelow(k, ledger.Below(tiers), have)
}
