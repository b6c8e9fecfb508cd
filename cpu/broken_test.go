package cpu_test

import (
	"testing"

	"github.com/kvstored/kvstored/internal/broken"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// An entry whose block was given to another, because of a reference let go of twice, is a
// miss: nobody gets the bytes of the other under its key. The other stays.
func TestBlockOfAnother(t *testing.T) {
	broken.Survive(t)
	h, a := newTier(t, 8*page, ledger.Limits{})
	one := store(t, h, 1, 1, page)
	var refs [1]tier.Ref
	if n, err := h.Hold(ledger.Daemon, ledger.IO, tiertest.Keys(one, 0, 1), refs[:]); n != 1 {
		t.Fatal(err)
	}
	b := refs[0].Block
	b.Release() // the holder's
	b.Release() // the entry's
	h.Ledger().Unhold(ledger.Daemon, ledger.IO, []ledger.ID{refs[0].ID})
	other := store(t, h, 2, 1, page) // in the same memory
	reports := broken.Count()
	if n, _ := h.Hold(ledger.Daemon, ledger.IO, tiertest.Keys(one, 0, 1), refs[:]); n != 0 {
		t.Errorf("it is found: %v", tiertest.CheckPayload(one.Key(0), refs[0].Block.Bytes()))
	}
	if s := h.Ledger().Stats(); broken.Count() == reports || s.AsideEntries != 1 || h.Has(one.Key(0)) {
		t.Errorf("%d reports; %+v", broken.Count()-reports, s)
	}
	if n, err := h.Hold(ledger.Daemon, ledger.IO, tiertest.Keys(other, 0, 1), refs[:]); n != 1 {
		t.Fatal(err)
	}
	if err := tiertest.CheckPayload(other.Key(0), refs[0].Block.Bytes()); err != nil || a.Stats().Blocks != 1 {
		t.Errorf("the other: %v, %d blocks", err, a.Stats().Blocks)
	}
	h.Release(ledger.Daemon, ledger.IO, refs[:])
	if err := h.Delete(t.Context(), tiertest.Keys(other, 0, 1)); err != nil {
		t.Error(err)
	}
}
