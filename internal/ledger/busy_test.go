package ledger_test

import (
	"errors"
	"testing"

	"github.com/kvstored/kvstored/internal/ledger"
)

// TestRemovedWhileHeld: a chunk that was removed while it is held, with another behind
// it, is refused until the hold ends, and only then stored anew.
func TestRemovedWhileHeld(t *testing.T) {
	l := newLedger(t, "lru", ledger.Limits{})
	ks := chain(1, 3)
	l.Publish(fill(t, l, ks, 0), false)
	o := l.NewOwner()
	out := make([]ledger.Entry, 3)
	if n, err := holdTouch(l, o, ledger.Lease, ks, out); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	if e, ok := l.Remove(ks[1]); ok {
		l.Free(e.ID)
	}
	begin := func() (ledger.ID, error) {
		id, _, err := l.Begin(o, ledger.Lease, ks[1], ks[0].Hash, page)
		return id, err
	}
	if _, err := begin(); !errors.Is(err, ledger.ErrBusy) {
		t.Errorf("while it is held: %v", err)
	}
	if _, st := l.Find(ks[2]); st != ledger.Resident {
		t.Errorf("the chunk behind it is %v", st)
	}
	l.Unhold(o, ledger.Lease, ids(out))
	id, err := begin()
	if err != nil {
		t.Fatalf("when nothing holds it any more: %v", err)
	}
	l.Publish([]ledger.ID{id}, false)
	if n, err := holdTouch(l, o, ledger.Lease, ks, out); n != 3 || err != nil {
		t.Errorf("%d of the chain are held again: %v", n, err)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}
