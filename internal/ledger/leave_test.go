package ledger_test

import (
	"testing"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// A victim that another fill has taken out leaves room under its quota at once, not only
// when that fill has freed it: a second fill is neither refused, nor evicts one more.
func TestVictimMakesRoomUnderItsQuota(t *testing.T) {
	for name, kept := range map[string]int{"all else is in use": 0, "others could go": 2} {
		l := ledger.New(ledger.Options{Policy: policyOf(t, "lru"), Quotas: []ledger.Quota{{Bytes: 4 * page}}})
		space := chain(0, 1)[0].Space
		l.Tuning().Assign(space, 0)
		used := chain(1, 3-kept)
		l.Publish(fill(t, l, used, 0), false)
		held := hold(t, l, ledger.Daemon, used)
		for seed := range uint32(1 + kept) {
			l.Publish(fill(t, l, chain(10+seed, 1), 0), false)
		}
		id := fill(t, l, chain(2, 1), 0)
		v, ok, err := l.EvictOwn(id[0], false)
		if !ok {
			t.Fatalf("%s: no victim, %v", name, err)
		}
		if e, ok, err := l.EvictOwn(id[0], false); ok || err != nil {
			t.Errorf("%s: over its quota with %d bytes while %+v leaves; evicted %+v", name, l.Quotas()[0].UsedBytes, v, e)
		}
		if _, ok := l.EvictOver(); ok || l.OverQuota() || l.Quotas()[0].UsedBytes != 4*page || l.SpaceBytes(space) != 4*page {
			t.Errorf("%s: %+v, a space has %d bytes", name, l.Quotas()[0], l.SpaceBytes(space))
		}
		if n := l.Stats().UsedBytes; n != 5*page {
			t.Errorf("%s: %d bytes are used before the victim is freed", name, n)
		}
		l.Free(v.ID)
		l.Abort(id[0])
		l.Unhold(ledger.Daemon, ledger.Lease, held)
		if n := l.Quotas()[0].UsedBytes; n != 3*page {
			t.Errorf("%s: %d bytes are left", name, n)
		}
		checked(t, l)
	}
}

// What goes first and is put back, since nobody has room to write it, goes first still.
func TestColdAndLostGoesFirst(t *testing.T) {
	works := near
	l := standing(t, &works, ledger.Limits{Unwritten: page})
	cold := chain(1, 1)
	l.Publish(fill(t, l, cold, 0), true)
	l.MarkCold(cold[0].Space, []key.Hash{cold[0].Hash})
	l.Publish(fill(t, l, chain(2, 1), 0), true)
	o := l.NewOwner()
	if err := l.Charge(o, ledger.Unwritten, page); err != nil {
		t.Fatal(err)
	}
	if e, ok := l.EvictSafely(); ok {
		t.Fatalf("%+v is lost: nobody has room to write it", e)
	}
	checked(t, l)
	l.Uncharge(o, ledger.Unwritten, page)
	if e, ok := l.EvictSafely(); !ok || e.Key != cold[0] {
		t.Errorf("evicted %+v, %t", e, ok)
	}
}
