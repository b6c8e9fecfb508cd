package ledger_test

import (
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

func hashesOf(ks []key.Key) (hs []key.Hash) {
	for _, k := range ks {
		hs = append(hs, k.Hash)
	}
	return hs
}

// The entries that a long prompt has left behind go first, from its root on, and
// before the leaves of others, however young they are; but not those held, used
// again, shared with another prompt, or nowhere below.
func TestDropBehind(t *testing.T) {
	works := near
	l := standing(t, &works, ledger.Limits{})
	small, long := chain(1, 2), chain(2, 10)
	l.Publish(fill(t, l, small, 0), false)
	l.Publish(fill(t, l, long, 0), false)
	for i, k := range long {
		l.SetBelow(k, near, i != 3)
	}
	tip := hold(t, l, ledger.Daemon, long[9:])
	branch := key.Key{Hash: key.Hash{77}}
	id, _, err := l.Begin(ledger.Daemon, ledger.IO, branch, long[5].Hash, page)
	if err != nil {
		t.Fatal(err)
	}
	l.Publish([]ledger.ID{id}, false)

	l.DropBehind(long[0].Space, hashesOf(long[:8]))
	l.Touch(long[1:2])
	var got []key.Key
	for range 5 {
		e, ok := l.Evict()
		if !ok {
			t.Fatal("nothing goes")
		}
		got = append(got, e.Key)
		l.Free(e.ID)
	}
	if want := []key.Key{long[0], long[2], long[4], long[6], long[7]}; !slices.Equal(got, want) {
		t.Errorf("evicted %x, want %x", hashesOf(got), hashesOf(want))
	}
	if e, ok := l.Evict(); !ok || e.Key != small[1] {
		t.Errorf("then %x went, want the oldest leaf", e.Key.Hash)
	} else {
		l.Free(e.ID)
	}
	l.Unhold(ledger.Daemon, ledger.Lease, tip)
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}

// What was removed under its readers is in nobody's way: of a line in which so much of it
// stood that victims took several turns, what has come by goes once it may.
func TestDropBehindForgetsWhatWasRemoved(t *testing.T) {
	works := near
	l := standing(t, &works, ledger.Limits{})
	small, long := chain(1, 10), chain(2, 18)
	l.Publish(fill(t, l, small, 0), false)
	l.Publish(fill(t, l, long, 0), false)
	last := hold(t, l, ledger.Daemon, long[16:])
	readers := hold(t, l, ledger.Daemon, long[:16])
	l.DropBehind(long[0].Space, hashesOf(long[:17]))
	for _, k := range long[:16] {
		if _, ok := l.Remove(k); !ok {
			t.Fatalf("%x is not there", k.Hash)
		}
	}
	want := small[7:]
	for i := range want { // no tier below has long[16] yet
		if e, ok := l.Evict(); !ok || e.Key != want[len(want)-1-i] {
			t.Errorf("victim %d is %x, %v", i, e.Key.Hash, ok)
		}
	}
	l.SetBelow(long[16], near, true)
	l.Unhold(ledger.Daemon, ledger.Lease, last[:1])
	if e, ok := l.Evict(); !ok || e.Key != long[16] {
		t.Errorf("then %x went, want what has come by", e.Key.Hash)
	}
	l.Unhold(ledger.Daemon, ledger.Lease, readers)
	l.Unhold(ledger.Daemon, ledger.Lease, last[1:])
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}

// While the tiers below are off nothing interior goes.
func TestDropBehindNeedsATierBelow(t *testing.T) {
	works := ledger.Below(0)
	l := standing(t, &works, ledger.Limits{})
	small, long := chain(1, 1), chain(2, 3)
	l.Publish(fill(t, l, small, 0), false)
	l.Publish(fill(t, l, long, 0), false)
	for _, k := range long {
		l.SetBelow(k, near, true)
	}
	l.DropBehind(long[0].Space, hashesOf(long[:2]))
	wantVictims(t, l, []key.Key{small[0], long[2], long[1], long[0]})
}
