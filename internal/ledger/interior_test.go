package ledger_test

import (
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

const (
	near ledger.Below = 1 << iota
	far
)

// standing is a ledger over two tiers, of which *works do.
func standing(t testing.TB, works *ledger.Below, limits ledger.Limits) *ledger.Ledger {
	l := newLedger(t, "lru", limits)
	l.Tuning().StackOn(func() ledger.Below { return *works })
	return l
}

func hold(t testing.TB, l *ledger.Ledger, o ledger.Owner, ks []key.Key) []ledger.ID {
	t.Helper()
	out := make([]ledger.Entry, len(ks))
	if n, err := holdTouch(l, o, ledger.Lease, ks, out); n != len(ks) || err != nil {
		t.Fatalf("held %d of %d: %v", n, len(ks), err)
	}
	return ids(out)
}

func wantVictims(t *testing.T, l *ledger.Ledger, want []key.Key) {
	t.Helper()
	if got := evictAll(t, l); !slices.Equal(got, want) {
		t.Errorf("evicted %x, want %x", got, want)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}

// Leaves go first. Then goes the part that was let go of first, from the root on.
func TestInteriorGoesLast(t *testing.T) {
	works := near | far
	l := standing(t, &works, ledger.Limits{})
	ks, other := chain(1, 10), chain(2, 2)
	l.Publish(fill(t, l, other, 0), false)
	l.Publish(fill(t, l, ks, 0), false)
	tip := hold(t, l, ledger.Daemon, ks[9:])
	later, first, too := hold(t, l, ledger.Daemon, ks[5:9]), hold(t, l, ledger.Daemon, ks[:5]), hold(t, l, ledger.Daemon, other)
	for _, k := range ks {
		l.SetBelow(k, near, true)
	}
	if e, ok := l.Evict(); ok {
		t.Errorf("%x was evicted while held", e.Key.Hash)
	}
	l.Unhold(ledger.Daemon, ledger.Lease, first)
	l.Unhold(ledger.Daemon, ledger.Lease, later)
	l.Unhold(ledger.Daemon, ledger.Lease, too)
	wantVictims(t, l, slices.Concat([]key.Key{other[1], other[0]}, ks[:9]))
	if s := l.Stats(); s.Entries != 1 || s.Holes != 1 || s.ProtectedBytes != page {
		t.Errorf("%+v", s)
	}
	l.Unhold(ledger.Daemon, ledger.Lease, tip)
	wantVictims(t, l, ks[9:])
}

// Two safe evictions do not count on the same room of the writers, and one that goes from
// underneath others without room counts on none.
func TestSafeVictimsAreCharged(t *testing.T) {
	works := near
	l := standing(t, &works, ledger.Limits{Unwritten: page})
	for seed := range uint32(2) {
		l.Publish(fill(t, l, chain(seed, 1), 0), true)
	}
	first, ok := l.EvictSafely()
	if !ok || !first.Charged || l.Stats().ClassBytes[ledger.Unwritten] != page {
		t.Fatalf("the first victim: %+v, %t", first, ok)
	}
	l.Free(first.ID)
	if e, ok := l.EvictSafely(); ok {
		t.Errorf("%+v is lost: nobody has room to write it", e)
	}
	under, tip := chain(3, 2), []ledger.ID(nil)
	l.Publish(fill(t, l, under, 0), true)
	tip = hold(t, l, ledger.Daemon, under[1:])
	l.SetBelow(under[0], near, true)
	if e, ok := l.EvictSafely(); !ok || e.Key != under[0] || e.Charged || l.Stats().ClassBytes[ledger.Unwritten] != page {
		t.Errorf("a victim for which the writer has no room: %+v, %t", e, ok)
	}
	l.Unhold(ledger.Daemon, ledger.Lease, tip)
	l.Remove(under[1])
	l.Uncharge(ledger.Daemon, ledger.Unwritten, page)
	if e, ok := l.EvictSafely(); !ok || !e.Charged {
		t.Errorf("the second victim: %+v, %t", e, ok)
	}
	works = 0
	l.Publish(fill(t, l, chain(2, 1), 0), true)
	if e, ok := l.EvictSafely(); !ok || e.Charged {
		t.Errorf("a victim that nobody writes: %+v, %t", e, ok)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}

// pairs are prompts of two chunks, the first of which is below and the second
// held.
func pairs(t testing.TB, l *ledger.Ledger, first, n uint32, where ledger.Below) (roots []key.Key) {
	t.Helper()
	for p := range n {
		ks := chain(first+p, 2)
		l.Publish(fill(t, l, ks, 0), false)
		hold(t, l, ledger.Daemon, ks[1:])
		l.SetBelow(ks[0], where, true)
		roots = append(roots, ks[0])
	}
	return roots
}

// An entry that was used since it was let go of has another round.
func TestWhatWasUsedHasAnotherRound(t *testing.T) {
	works := near
	l := standing(t, &works, ledger.Limits{})
	roots := pairs(t, l, 0, 4, near)
	l.Touch(roots[:1])
	l.Touch(roots[2:3])
	wantVictims(t, l, []key.Key{roots[1], roots[3], roots[0], roots[2]})
}

// A prompt is as long as its client likes: what a tier below has is not
// charged for what stands on it, and makes room.
func TestPromptLongerThanTheBudget(t *testing.T) {
	works := near
	l := standing(t, &works, ledger.Limits{Lease: 4 * page, Total: 8 * page})
	ks := chain(1, 100)
	o := l.NewOwner()
	for i, k := range ks {
		id, _, err := l.Begin(o, ledger.Lease, k, parent(ks, i), page)
		if err != nil {
			t.Fatalf("chunk %d: %v", i, err)
		}
		l.Publish([]ledger.ID{id}, true)
		l.SetBelow(k, near, true)
		if l.Stats().UsedBytes <= 10*page {
			continue
		}
		tip := hold(t, l, o, ks[i:i+1])
		e, ok := l.Evict()
		if !ok || e.Key != ks[i-10] {
			t.Fatalf("at chunk %d went %x, %v", i, e.Key.Hash, ok)
		}
		l.Free(e.ID)
		l.Unhold(o, ledger.Lease, tip)
	}
}

// Only a tier that works makes up for an entry that goes, and one that has lost
// the chunk does not.
func TestOnlyAWorkingTierStandsIn(t *testing.T) {
	works := far
	l := standing(t, &works, ledger.Limits{})
	first, both, second := pairs(t, l, 0, 1, near), pairs(t, l, 1, 1, near|far), pairs(t, l, 2, 1, far)
	if s := l.Stats(); s.ProtectedBytes != 3*page {
		t.Errorf("%d bytes protected, want those of the three that are held", s.ProtectedBytes)
	}
	l.SetBelow(second[0], far, false)
	if s := l.Stats(); s.ProtectedBytes != 4*page {
		t.Errorf("%d bytes protected, want one chunk more", s.ProtectedBytes)
	}
	wantVictims(t, l, both)
	works = near
	wantVictims(t, l, first)
	freed := l.Released()
	l.SetBelow(second[0], near, true)
	select {
	case <-freed:
	default:
		t.Error("SetBelow did not wake who waits")
	}
	works = 0
	wantVictims(t, l, nil)
	works = near | far
	wantVictims(t, l, second)
}

// A quota is kept by the same rule.
func TestQuotaEvictsInterior(t *testing.T) {
	works := near
	l := ledger.New(ledger.Options{Policy: policyOf(t, "lru"), Quotas: []ledger.Quota{{Bytes: 3 * page}}})
	l.Tuning().StackOn(func() ledger.Below { return works })
	ks := chain(1, 5)
	l.Tuning().Assign(ks[0].Space, 0)
	var last ledger.ID
	for i, k := range ks {
		id, _, err := l.Begin(ledger.Daemon, ledger.Load, k, parent(ks, i), page)
		if err != nil {
			t.Fatal(err)
		}
		for {
			e, ok, err := l.EvictOwn(id, false)
			if !ok && err == nil {
				break
			}
			if !ok || i < 3 || e.Key != ks[i-3] {
				t.Fatalf("for chunk %d went %x, %v", i, e.Key.Hash, ok)
			}
			l.Free(e.ID)
		}
		l.Publish([]ledger.ID{id}, false)
		l.SetBelow(k, near, true)
		if i > 0 {
			l.Unhold(ledger.Daemon, ledger.Lease, []ledger.ID{last})
		}
		last = hold(t, l, ledger.Daemon, ks[i:i+1])[0]
	}
	if q := l.Quotas()[0]; q.Refused != 0 || q.UsedBytes != 3*page {
		t.Errorf("%+v", q)
	}
}

// A victim costs the same past a hundred thousand entries that are held.
func BenchmarkEvictUnder(b *testing.B) {
	works := near
	l := standing(b, &works, ledger.Limits{})
	for p := range uint32(100) {
		hold(b, l, ledger.Daemon, pairs(b, l, 1000*p, 1000, near))
	}
	pairs(b, l, 100_000, 1000, near)
	b.ReportAllocs()
	for b.Loop() {
		e, ok := l.Evict()
		if !ok {
			b.Fatal("nothing left")
		}
		l.Free(e.ID)
		id, _, _ := l.Begin(ledger.Daemon, ledger.Load, e.Key, e.Parent, page)
		l.Publish([]ledger.ID{id}, false)
		l.SetBelow(e.Key, near, true)
	}
}
