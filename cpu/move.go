package cpu

import (
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/tier"
)

// keep notes in both books that a block is the payload of a fill.
func (t *Tier) keep(id ledger.ID, b arena.Block, r tier.Record) {
	b.SetTag(uint32(id))
	t.ledger.SetValue(id, tier.HotValue(b, r))
}

// move puts a copy in the place of a block whose entry is not held; see
// arena.Compact. A later hold of the entry gets the copy; a reference of the
// block itself that was taken before, such as that of Get, keeps the block.
func (t *Tier) move(from, to arena.Block) bool {
	n := to.Len() // afterwards it is the entry's, and may be gone at once
	if !t.notes.exchange(t, from, to) {
		return false
	}
	t.moved.Add(1)
	t.movedBytes.Add(uint64(n))
	return true
}
