package ledger_test

import (
	"errors"
	"testing"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// There are as many owners as an entry can count. One more is refused, and has a number
// when another has closed its own.
func TestOwnersAreBounded(t *testing.T) {
	l := ledger.New(ledger.Options{Policy: policyOf(t, "lru")})
	all := chain(1, 1)
	l.Publish(fill(t, l, all, 0), false)
	var held []ledger.ID
	given := make(map[ledger.Owner]bool)
	for range ledger.MaxOwners {
		o := l.NewOwner()
		if o == ledger.Daemon || given[o] {
			t.Fatalf("the number of owner %d is %d", len(given), o)
		}
		given[o] = true
		held = hold(t, l, o, all)
	}
	if o := l.NewOwner(); o != ledger.Daemon {
		t.Fatalf("%d owners are open, and one more is %d", len(given), o)
	}
	if got := l.Stats().Owners; got != ledger.MaxOwners {
		t.Errorf("%d owners are counted", got)
	}
	const one = 40_000
	l.Unhold(one, ledger.Lease, held)
	l.CloseOwner(one)
	if o := l.NewOwner(); o == ledger.Daemon || given[o] {
		t.Errorf("in the place of one that has left comes %d", o)
	}
	checked(t, l)
}

// An owner that is closed keeps what it holds, fills and is charged for until that is given back,
// and is given nothing more. Then it ends, once, and the one that has its place next is another.
func TestOwnerLeaves(t *testing.T) {
	const page = 4096
	l := ledger.New(ledger.Options{Policy: policyOf(t, "lru")})
	ks := chain(1, 3)
	l.Publish(fill(t, l, ks[:2], 0), false)
	o := l.NewOwner()
	held := hold(t, l, o, ks[:1])
	filling, _, err := l.Begin(o, ledger.Lease, ks[2], ks[1].Hash, page)
	if err == nil {
		err = l.Charge(o, ledger.Unwritten, page)
	}
	if err != nil {
		t.Fatal(err)
	}
	refused := func(o ledger.Owner) {
		t.Helper()
		var out [2]ledger.Entry
		for _, c := range []ledger.Class{ledger.Lease, ledger.Pin, ledger.IO} {
			if n, err := l.Hold(o, c, ks[:2], out[:]); n != 0 || !errors.Is(err, ledger.ErrOverBudget) {
				t.Errorf("it holds %d more for %v: %v", n, c, err)
			}
		}
		if _, _, err := l.Begin(o, ledger.Lease, chain(2, 1)[0], key.Hash{}, page); !errors.Is(err, ledger.ErrOverBudget) {
			t.Errorf("it begins: %v", err)
		}
		if err := l.Charge(o, ledger.Unwritten, page); !errors.Is(err, ledger.ErrOverBudget) {
			t.Errorf("it is charged: %v", err)
		}
		checked(t, l)
	}
	for _, giveBack := range []func(){
		func() { l.Unhold(o, ledger.Lease, held) },
		func() { l.Abort(filling) },
		func() { l.Uncharge(o, ledger.Unwritten, page) },
	} {
		l.CloseOwner(o)
		refused(o)
		if n := l.Stats().Owners; n != 1 {
			t.Errorf("%d owners", n)
		}
		giveBack()
	}
	if s := l.Stats(); s.Owners != 0 || s.ProtectedBytes != 0 {
		t.Errorf("something is left: %+v", s)
	}
	next := l.NewOwner()
	hold(t, l, next, ks[:1])
	l.CloseOwner(o)
	if refused(o); l.OwnerBytes(o, ledger.Lease) != 0 || l.OwnerBytes(next, ledger.Lease) != page {
		t.Error("one that has left has what the next holds")
	}
}
