package ledger_test

import (
	"testing"

	"github.com/kvstored/kvstored/internal/ledger"
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
	if l.CloseOwner(one); l.NewOwner() != one {
		t.Error("its number is not given out again")
	}
	checked(t, l)
}
