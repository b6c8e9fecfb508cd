package ledger_test

import (
	"testing"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// TestClaimedGoLast: under every policy, unclaimed entries go first, then the claimed one
// used longest ago, leaves before their parents; and nothing is in the way of a fill.
func TestClaimedGoLast(t *testing.T) {
	for _, name := range policy.All() {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t, name, ledger.Limits{})
			for n := byte(1); n <= 8; n++ { // 1-2-3-4, and four others
				parent := key.Hash{}
				if n <= 4 && n > 1 {
					parent = key.Hash{n - 1}
				}
				id, _, err := l.Begin(ledger.Daemon, ledger.IO, key.Key{Hash: key.Hash{n}}, parent, 1)
				if err != nil {
					t.Fatal(err)
				}
				l.Publish([]ledger.ID{id}, false)
			}
			hs := []key.Hash{{1}, {2}, {3}, {4}, {5}, {6}, {9}}
			ledger.Claim(l, key.SpaceID{}, hs, []bool{true, true, true, true, true, true, true})
			l.Touch([]key.Key{{Hash: key.Hash{5}}})
			if n := l.Stats().ClaimedBytes; n != 6*page {
				t.Errorf("%d bytes are claimed, want %d", n, 6*page)
			}
			var order []byte
			for range 8 {
				if err := l.Check(); err != nil {
					t.Fatal(err)
				}
				e, ok := l.Evict()
				if !ok {
					t.Fatalf("nothing can be evicted after %v", order)
				}
				l.Free(e.ID)
				order = append(order, e.Key.Hash[0])
			}
			if first := order[0] + order[1]; first != 7+8 {
				t.Errorf("%v: those that nobody claims are not the first", order)
			}
			if got, want := string(order[2:]), "\x04\x03\x02\x01\x06\x05"; got != want {
				t.Errorf("they went in the order %v, want %v behind the first two", order, []byte(want))
			}
		})
	}
}

// TestClaimEnds: an unclaimed entry has the place that it would have had.
func TestClaimEnds(t *testing.T) {
	l := newLedger(t, "lru", ledger.Limits{})
	for n := byte(1); n <= 3; n++ {
		id, _, err := l.Begin(ledger.Daemon, ledger.IO, key.Key{Hash: key.Hash{n}}, key.Hash{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		l.Publish([]ledger.ID{id}, false)
	}
	first := []key.Hash{{1}}
	ledger.Claim(l, key.SpaceID{}, first, []bool{true})
	evict := func(want byte) {
		t.Helper()
		if e, ok := l.Evict(); !ok || e.Key.Hash[0] != want {
			t.Errorf("%x went, want %x", e.Key.Hash[0], want)
		}
	}
	evict(2)
	ledger.Claim(l, key.SpaceID{}, first, []bool{false})
	evict(1)
	evict(3)
	if n := l.Stats().ClaimedBytes; n != 0 {
		t.Errorf("%d bytes are claimed", n)
	}
}

// TestCoolClaimed: what only one prompt has goes first, claimed or not; what another has
// too stays claimed.
func TestCoolClaimed(t *testing.T) {
	l := newLedger(t, "lru", ledger.Limits{})
	for n, parent := range []byte{0, 1, 2, 2, 0} { // 1-2-3, 1-2-4, and 5
		up := key.Hash{}
		if parent > 0 {
			up = key.Hash{parent}
		}
		id, _, err := l.Begin(ledger.Daemon, ledger.IO, key.Key{Hash: key.Hash{byte(n + 1)}}, up, 1)
		if err != nil {
			t.Fatal(err)
		}
		l.Publish([]ledger.ID{id}, false)
	}
	ledger.Claim(l, key.SpaceID{}, []key.Hash{{1}, {2}, {3}}, []bool{true, true, true})
	ledger.Cool(l, key.SpaceID{}, []key.Hash{{1}, {2}, {3}})
	if n := l.Stats().ClaimedBytes; n != 2*page {
		t.Errorf("%d bytes are claimed, want %d", n, 2*page)
	}
	var order []byte
	for range 5 {
		e, ok := l.Evict()
		if !ok {
			t.Fatalf("nothing can be evicted after %v", order)
		}
		l.Free(e.ID)
		order = append(order, e.Key.Hash[0])
	}
	if order[0] != 3 || order[3] != 2 || order[4] != 1 {
		t.Errorf("they went in the order %v: want 3 first, then 4 and 5", order)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}
