package ledger_test

import (
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

func victims(t *testing.T, l *ledger.Ledger, n int) (ks []key.Key) {
	t.Helper()
	for range n {
		e, ok := l.Evict()
		if !ok {
			t.Fatalf("only %d go", len(ks))
		}
		l.Free(e.ID)
		ks = append(ks, e.Key)
	}
	return ks
}

// windows are chunks that stand alone, in a space of their own.
func windows(t *testing.T, l *ledger.Ledger, space byte, n int) []key.Key {
	t.Helper()
	ks := chain(9, n)
	for i := range ks {
		ks[i].Space[0] = space
		id, _, err := l.Begin(ledger.Daemon, ledger.Load, ks[i], key.Hash{}, page)
		if err != nil {
			t.Fatal(err)
		}
		l.Publish([]ledger.ID{id}, false)
	}
	return ks
}

// Chunks below the last end that is needed go first, deepest first, under each policy; those
// above it, and those that were used, keep their turn.
func TestDeadGoFirst(t *testing.T) {
	for _, name := range policy.All() {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t, name, ledger.Limits{})
			ks, other := chain(1, 8), chain(2, 1)
			l.Publish(fill(t, l, other, 0), false)
			l.Publish(fill(t, l, ks, 0), false)
			w := windows(t, l, 7, 4)
			ledger.Need(l, ks[2], true, true)
			ledger.Need(l, ks[7], true, true)
			for _, k := range w {
				ledger.Need(l, k, false, true)
			}
			ledger.Need(l, w[2], false, false)
			ledger.Need(l, ks[7], true, false)
			if got, want := victims(t, l, 6), []key.Key{w[2], ks[7], ks[6], ks[5], ks[4], ks[3]}; !slices.Equal(got, want) {
				t.Errorf("%x went first, want %x", hashesOf(got), hashesOf(want))
			}
			if err := l.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A chunk that was used since it came is not dead, nor is one above it.
func TestUsedIsNotDead(t *testing.T) {
	l := newLedger(t, "lru", ledger.Limits{})
	ks, other := chain(1, 6), chain(2, 2)
	l.Publish(fill(t, l, ks, 0), false)
	l.Publish(fill(t, l, other, 0), false)
	ledger.Need(l, ks[5], true, true)
	l.Touch(ks[:4])
	l.Touch(other)
	ledger.Need(l, ks[5], true, false)
	wantVictims(t, l, []key.Key{ks[5], ks[4], ks[3], ks[2], ks[1], ks[0], other[1], other[0]})
	// The order is that of lru from ks[3] on: with the others older they go first.
	l.Publish(fill(t, l, other, 0), false)
	l.Publish(fill(t, l, ks, 0), false)
	ledger.Need(l, ks[5], true, true)
	l.Touch(ks[:4])
	ledger.Need(l, ks[5], true, false)
	wantVictims(t, l, []key.Key{ks[5], ks[4], other[1], other[0], ks[3], ks[2], ks[1], ks[0]})
}

// A revived chunk is as any other, and an end that goes by the policy's choice makes what
// it ended dead.
func TestDeadAreRevived(t *testing.T) {
	l := newLedger(t, "lru", ledger.Limits{})
	ks, other := chain(1, 4), chain(2, 2)
	l.Publish(fill(t, l, other, 0), false)
	l.Publish(fill(t, l, ks, 0), false)
	ledger.Need(l, ks[3], true, true)
	ledger.Need(l, ks[3], true, false)
	ledger.Revive(l, ks[3])
	wantVictims(t, l, []key.Key{other[1], other[0], ks[3], ks[2], ks[1], ks[0]})
	l.Publish(fill(t, l, ks, 0), false)
	l.Publish(fill(t, l, other, 0), false)
	ledger.Need(l, ks[3], true, true)
	wantVictims(t, l, []key.Key{ks[3], ks[2], ks[1], ks[0], other[1], other[0]})
}

// M victims past K dead entries that are held inspect at most 2.1 (M + K) entries, also one by
// one, full chunks with the windows that stand on them.
func TestDeadSteps(t *testing.T) {
	const m, k = 1000, 1000
	for _, name := range policy.All() {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t, name, ledger.Limits{})
			w := windows(t, l, 7, m+k)
			ks := chain(1, m+k)
			l.Publish(fill(t, l, ks, 0), false)
			held := make([]ledger.Entry, k)
			for i := range k {
				if n, err := l.Hold(ledger.Daemon, ledger.IO, w[2*i:2*i+1], held[i:i+1]); n != 1 || err != nil {
					t.Fatal(n, err)
				}
			}
			for _, x := range w {
				ledger.Need(l, x, false, false)
			}
			ledger.Need(l, ks[len(ks)-1], true, true)
			ledger.Need(l, ks[len(ks)-1], true, false)
			before := l.Stats().Steps
			got := victims(t, l, m+m)
			if steps := l.Stats().Steps - before; float64(steps) > 2.1*(2*m+k) {
				t.Errorf("%d victims past %d inspected %d entries", 2*m, k, steps)
			}
			for _, g := range got {
				if g.Space == w[0].Space && slices.Index(w, g)%2 == 0 {
					t.Fatalf("a held window went")
				}
			}
			l.Unhold(ledger.Daemon, ledger.IO, ids(held))
			before = l.Stats().Steps
			victims(t, l, k) // in the line again
			if steps := l.Stats().Steps - before; float64(steps) > 2.1*k {
				t.Errorf("%d victims that were held inspected %d entries", k, steps)
			}
			if err := l.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Policies with ghosts keep one of an entry that goes because nothing needs it, and know it when it
// comes again; then its turn is theirs.
func TestDeadLeaveGhosts(t *testing.T) {
	for _, name := range []string{"arc", "s3fifo"} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t, name, ledger.Limits{})
			old := chain(2, 3)
			l.Publish(fill(t, l, old, 0), false)
			w := windows(t, l, 7, 1)
			ledger.Need(l, w[0], false, false)
			if got := victims(t, l, 1); got[0] != w[0] {
				t.Fatalf("%x went first, want %x", hashesOf(got), hashesOf(w))
			}
			windows(t, l, 7, 1) // it comes again
			ledger.Need(l, w[0], false, false)
			if got := victims(t, l, 1); got[0] == w[0] {
				t.Error("what was asked for again went first")
			}
			if err := l.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}
