package cpu_test

import (
	"testing"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// An entry whose block was given to another, because of a reference let go of twice, is a
// miss: nobody gets the bytes of the other under its key. The other stays.
func TestBlockOfAnother(t *testing.T) {
	t.Cleanup(base.SurviveBroken())
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
	reports := base.BrokenCount()
	if n, _ := h.Hold(ledger.Daemon, ledger.IO, tiertest.Keys(one, 0, 1), refs[:]); n != 0 {
		t.Errorf("it is found: %v", tiertest.CheckPayload(one.Key(0), refs[0].Block.Bytes()))
	}
	if s := h.Ledger().Stats(); base.BrokenCount() == reports || s.AsideEntries != 1 || h.Has(one.Key(0)) {
		t.Errorf("%d reports; %+v", base.BrokenCount()-reports, s)
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

// Where more than a hundredth of DRAM is put aside, all goes that nobody leases, once.
func TestEmptiedInMistrust(t *testing.T) {
	t.Cleanup(base.SurviveBroken())
	const pages = 1000
	h, _ := newTier(t, pages*page, ledger.Limits{})
	c := store(t, h, 1, 100, page)
	var leased [5]tier.Ref
	if n, err := h.Hold(ledger.Daemon, ledger.Lease, tiertest.Keys(c, 0, 5), leased[:]); n != 5 {
		t.Fatal(err)
	}
	entries := func() int { return h.Ledger().Stats().Entries }
	drop := func(v tier.Victim) bool { v.Block.Release(); return false }
	for i := 99; i > 89; i-- {
		h.Shrink(t.Context(), 0, drop)
		if h.Crowded(0) || entries() != i+1 || h.Mistrusted() != nil {
			t.Fatalf("%d entries with %d put aside", entries(), 99-i)
		}
		e, _ := h.Ledger().Find(c.Key(i))
		b, err := h.Get(t.Context(), c.Key(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		h.Ledger().PutAside(e.ID, "is to go")
		defer b.Release()
		defer b.Release() // the reference that nobody gives back
	}
	if !h.Crowded(0) || h.Mistrusted() == nil {
		t.Errorf("it does not ask to be emptied: %v", h.Mistrusted())
	}
	h.Shrink(t.Context(), 0, drop)
	if h.Crowded(0) || entries() != 5 {
		t.Errorf("%d entries are left, want those that are leased", entries())
	}
	h.Release(ledger.Daemon, ledger.Lease, leased[:])
	if h.Shrink(t.Context(), 0, drop); entries() != 5 {
		t.Errorf("it is emptied again: %d entries", entries())
	}
	if err := h.Delete(t.Context(), tiertest.Keys(c, 0, 5)); err != nil {
		t.Error(err)
	}
}

// Emptying waits for writers that have no room for more, and goes on until nothing is left
// that could go.
func TestEmptiedAsWritten(t *testing.T) {
	t.Cleanup(base.SurviveBroken())
	h, _ := newTier(t, 1000*page, ledger.Limits{Unwritten: page})
	h.Ledger().Tuning().StackOn(func() ledger.Below { return 2 })
	for seed := range uint64(20) {
		h.Publish([]tier.Ref{reserve(t, h, ledger.Daemon, tiertest.Chain(seed, 1), 0, page)}, true, false)
	}
	for seed := range uint64(11) {
		k := tiertest.Chain(seed, 1).Key(0)
		e, _ := h.Ledger().Find(k)
		b, err := h.Get(t.Context(), k, nil)
		if err != nil {
			t.Fatal(err)
		}
		h.Ledger().PutAside(e.ID, "is to go")
		b.Release()
		defer b.Release() // the reference that nobody gives back
	}
	var writing []tier.Victim
	for passes := 0; h.Crowded(0); passes++ {
		h.Shrink(t.Context(), 0, func(v tier.Victim) bool { writing = append(writing, v); return true })
		if len(writing) > 1 || passes > 20 {
			t.Fatalf("pass %d: %d are being written, and there is room for one", passes, len(writing))
		}
		for _, v := range writing {
			v.Block.Release()
			h.Ledger().Uncharge(ledger.Daemon, ledger.Unwritten, page)
		}
		writing = nil
	}
	if n := h.Ledger().Stats().Entries; n != 0 {
		t.Errorf("%d entries are left", n)
	}
}
