package stack

import (
	"context"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Current says of each chunk of c whether it is in DRAM in the entry id(i), 0 for none.
// It takes no hold.
func (l *leases) Current(c *key.Chain, id func(i int) ledger.ID, is []bool) {
	sc := borrow(0)
	defer sc.give()
	ledger.Current(l.hot.Ledger(), sc.chain(c, 0, c.Len()), is, id)
}

// HoldEach is Hold for chunks that stand alone: each of c that is in DRAM and
// within budget is held, and refs, as long as c, has its ref; that of any other is
// zero. Chunks in transit are not held: those are for Hold.
func (l *leases) HoldEach(o ledger.Owner, cl ledger.Class, c *key.Chain, refs []tier.Ref) {
	sc := borrow(0)
	defer sc.give()
	ks := sc.chain(c, 0, c.Len())
	refs = refs[:len(ks)]
	clear(refs)
	l.hot.HoldEach(o, cl, ks, refs)
	l.ages.Each(c.Space, c.Hashes, func(i int) {
		if refs[i].Valid() {
			l.Release(o, cl, refs[i:i+1])
		}
	})
	if cl != ledger.Lease {
		return
	}
	for i := range refs {
		if refs[i].Valid() { // of more than one those behind a wrong one would go too
			l.verified(o, cl, ks[i:i+1], refs[i:i+1])
		}
	}
	for _, below := range l.levels.below {
		below.writer.touched(c, 0, refs)
	}
}

// Where says which tiers that are not switched off have each of the chunks of c,
// which stand alone, in memory only. It is not sure of those that it finds nowhere
// while a tier is being scanned; Match is.
func (l lookups) Where(ctx context.Context, c *key.Chain, at []tier.Set) (sure bool) {
	sc := borrow(c.Len())
	defer sc.give()
	sure = l.scanning() == 0 // first: what a scan brings is there before it ends
	l.locate(c, 0, sc.at)
	on := ^l.levels.off()
	for i, in := range sc.at {
		at[i] = tier.Set(in) & on
	}
	return sure
}
