package ledger_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/checkpoint"
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
// some cold or passed.
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
		l.Pass(k.Space, []key.Hash{k.Hash})
	}
}

// save writes what a ledger has as a checkpoint. The word A of a value is its sum.
func save(l *ledger.Ledger, to io.WriterAt) error {
	learned, err := l.SavePolicy()
	if err != nil {
		return err
	}
	w, err := checkpoint.NewWriter(to, 1<<40, l.PolicyName())
	if err != nil {
		return err
	}
	at := int64(0)
	ledger.Unload(l, func(e *ledger.Entry) {
		w.Add(&checkpoint.Record{
			Key: e.Key, Parent: e.Parent, Offset: at << 12, Size: e.Size, Sum: e.Value.A, Word: e.Value.B,
			Hits: e.Hits, Below: uint8(e.Below), Dirty: e.Dirty,
		})
		at++
	})
	return w.Close(nil, learned)
}

func load(l *ledger.Ledger, f *checkpoint.File) (lost int) {
	for i := range f.Len() {
		if ledger.Backwards(f.Policy()) {
			i = f.Len() - 1 - i
		}
		r := f.Record(i)
		if _, ok := ledger.Reload(l, ledger.Entry{Key: r.Key, Parent: r.Parent, Size: r.Size, Value: ledger.Value{A: r.Sum, B: r.Word}, Dirty: r.Dirty}, r.Hits); !ok {
			lost++
		}
	}
	return lost
}

type buffer struct{ bytes.Buffer }

func (b *buffer) WriteAt(p []byte, off int64) (int, error) {
	if need := int(off) + len(p) - b.Len(); need > 0 {
		b.Write(make([]byte, need))
	}
	return copy(b.Bytes()[off:], p), nil
}

// A ledger that went through a checkpoint has every entry as it was, and its sums; for
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
			var file buffer
			if err := save(l, &file); err != nil {
				t.Fatal(err)
			}
			f, err := checkpoint.Open(file.Bytes())
			if err != nil || f.Len() != before.Entries || f.Policy() != name {
				t.Fatalf("%d entries of %d under %q, %v", f.Len(), before.Entries, f.Policy(), err)
			}
			to := newUnload(t, name)
			if len(f.Learned()) > 0 {
				if err := to.LoadPolicy(f.Learned()); err != nil {
					t.Fatal(err)
				}
			}
			if lost := load(to, f); lost > 0 {
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
			if slices.Contains(ordered, name) {
				i := 0
				ledger.Unload(to, func(e *ledger.Entry) {
					if i < f.Len() && f.Record(i).Key != e.Key {
						t.Fatalf("the entry that goes as number %d is another one", i)
					}
					i++
				})
			}
		})
	}
}

// BenchmarkUnload writes a million entries into a memory file, or reads them.
func BenchmarkUnload(b *testing.B) {
	for range b.N {
		l := newUnload(b, "lru")
		used(l, 10_000, 100, rand.New(rand.NewPCG(1, 2)))
		file, err := os.CreateTemp("/dev/shm", "checkpoint")
		if err != nil {
			b.Skip(err)
		}
		defer file.Close()
		defer os.Remove(file.Name())
		begun := b.Elapsed()
		if err := save(l, file); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64((b.Elapsed() - begun).Milliseconds()), "ms/write")
		data, err := os.ReadFile(file.Name())
		if err != nil {
			b.Fatal(err)
		}
		begun = b.Elapsed()
		f, err := checkpoint.Open(data)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64((b.Elapsed() - begun).Milliseconds()), "ms/open")
		begun = b.Elapsed()
		load(newUnload(b, "lru"), f)
		b.ReportMetric(float64((b.Elapsed() - begun).Milliseconds()), "ms/reload")
		b.ReportMetric(float64(f.Len()), "entries")
	}
}
