package ledger_test

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

func unloadKey(n int) (k key.Key) {
	binary.BigEndian.PutUint32(k.Hash[:], uint32(n+1))
	k.Space[0] = byte(n % 3)
	return k
}

func newUnload(t testing.TB, name string) *ledger.Ledger {
	t.Helper()
	p, err := policy.New(name, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	return ledger.New(ledger.Options{CapacityBytes: 1 << 40, Policy: p, PolicyName: name, DeferTraining: true})
}

// used fills a ledger with chains, uses some of their chunks, removes others, and makes
// some cold or to be dropped behind.
func used(l *ledger.Ledger, chains, length int, rng *rand.Rand) {
	for c := range chains {
		var parent key.Hash
		for i := range length {
			k := unloadKey(3*(c*length+i) + c%3)
			l.Restore(ledger.Entry{Key: k, Size: uint32(1 + rng.IntN(1<<20)), Value: ledger.Value{A: rng.Uint64(), B: rng.Uint64()}, Dirty: rng.IntN(2) == 0}, parent)
			parent = k.Hash
		}
	}
	some := func() key.Key { c := rng.IntN(chains); return unloadKey(3*(c*length+rng.IntN(length)) + c%3) }
	for range chains * length / 2 {
		l.Touch([]key.Key{some()})
	}
	for range chains {
		if e, ok := l.Remove(some()); ok { // which leaves holes
			l.Free(e.ID)
		}
		k := some()
		l.MarkCold(k.Space, []key.Hash{k.Hash})
		k = some()
		l.DropBehind(k.Space, []key.Hash{k.Hash})
	}
}

// left is what a ledger leaves.
type left struct {
	policy  string
	learned []byte
	entries []ledger.Entry
}

func leave(t testing.TB, l *ledger.Ledger) (f left) {
	t.Helper()
	var err error
	if f.learned, err = l.Planning().Save(); err != nil {
		t.Fatal(err)
	}
	f.policy = l.PolicyName()
	ledger.Unload(l, func(e *ledger.Entry) { f.entries = append(f.entries, *e) })
	return f
}

func load(l *ledger.Ledger, f *left) (lost int) {
	for i := range f.entries {
		if ledger.Backwards(f.policy) {
			i = len(f.entries) - 1 - i
		}
		e := &f.entries[i]
		if _, ok := ledger.Reload(l, ledger.Entry{Key: e.Key, Parent: e.Parent, Size: e.Size, Value: e.Value, Dirty: e.Dirty}, e.Hits); !ok {
			lost++
		}
	}
	return lost
}

// A ledger that another one has left has every entry as it was, and its sums; for
// the policies whose order hangs on recency and uses alone, also the order.
func TestUnloadAndReload(t *testing.T) {
	ordered := []string{"lru", "fifo", "mru"}
	for _, name := range policy.All() {
		t.Run(name, func(t *testing.T) {
			l := newUnload(t, name)
			used(l, 40, 30, rand.New(rand.NewPCG(1, 2)))
			var want []ledger.Entry
			for n := range 3 * 40 * 31 {
				if e, st := l.Find(unloadKey(n)); st == ledger.Resident {
					want = append(want, e)
				}
			}
			before := l.Stats()
			f := leave(t, l)
			if len(f.entries) != before.Entries {
				t.Fatalf("%d entries of %d", len(f.entries), before.Entries)
			}
			to := newUnload(t, name)
			if len(f.learned) > 0 {
				if err := to.Planning().Load(f.learned); err != nil {
					t.Fatal(err)
				}
			}
			if lost := load(to, &f); lost > 0 {
				t.Fatalf("%d entries are lost", lost)
			}
			for _, e := range want {
				got, st := to.Find(e.Key)
				got.ID, e.ID, e.Cold = 0, 0, false // what goes first is told anew
				if st != ledger.Resident || got != e {
					t.Fatalf("an entry was %+v and is %+v", e, got)
				}
			}
			after := to.Stats()
			if after.Entries != before.Entries || after.UsedBytes != before.UsedBytes || after.Holes != before.Holes ||
				after.DirtyEntries != before.DirtyEntries || after.DirtyBytes != before.DirtyBytes {
				t.Errorf("the sums were %+v and are %+v", before, after)
			}
			if err := to.Check(); err != nil {
				t.Error(err)
			}
			if again := leave(t, to); slices.Contains(ordered, name) && !slices.EqualFunc(again.entries, f.entries, sameKey) {
				t.Error("the order is another one")
			}
		})
	}
}

func sameKey(a, b ledger.Entry) bool { return a.Key == b.Key }

// Drop visits what nothing protects, once, also what Unload has taken out of the order.
func TestDrop(t *testing.T) {
	for _, unloaded := range []bool{false, true} {
		l := newUnload(t, "lru")
		used(l, 40, 30, rand.New(rand.NewPCG(1, 2)))
		var k key.Key // one that is there
		out := make([]ledger.Entry, 1)
		for i, n := 0, 0; n == 0; i++ {
			k = unloadKey(3 * i)
			n, _ = l.Hold(ledger.Daemon, ledger.IO, []key.Key{k}, out)
		}
		have := l.Stats().Entries
		if unloaded {
			ledger.Unload(l, func(*ledger.Entry) {})
		}
		dropped := map[key.Key]bool{}
		for range 2 {
			ledger.Drop(l, func(e *ledger.Entry) {
				if dropped[e.Key] {
					t.Error("an entry is dropped twice")
				}
				dropped[e.Key] = true
			})
		}
		if dropped[k] || len(dropped) < have-30 || len(dropped) >= have {
			t.Errorf("%d of %d entries are dropped", len(dropped), have)
		}
		l.Unhold(ledger.Daemon, ledger.IO, []ledger.ID{out[0].ID})
	}
}

// BenchmarkUnload visits a million entries, or takes them up.
func BenchmarkUnload(b *testing.B) {
	for range b.N {
		l := newUnload(b, "lru")
		used(l, 10_000, 100, rand.New(rand.NewPCG(1, 2)))
		begun := b.Elapsed()
		f := leave(b, l)
		b.ReportMetric(float64((b.Elapsed() - begun).Milliseconds()), "ms/unload")
		begun = b.Elapsed()
		load(newUnload(b, "lru"), &f)
		b.ReportMetric(float64((b.Elapsed() - begun).Milliseconds()), "ms/reload")
		b.ReportMetric(float64(len(f.entries)), "entries")
	}
}
