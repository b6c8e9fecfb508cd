package cpu_test

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/manifest"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// Chunks of an earlier process are found once they are proved, however that goes along with
// deletes and with stores under the same keys; wrong ones are not.
func TestDirectoryHasNoDoubts(t *testing.T) {
	m, err := manifest.New(4 * mib)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	first := newShown(t, newShared(t, 4*mib), m)
	var chains []*key.Chain
	var ks []key.Key
	for n := range uint64(60) {
		chains = append(chains, store(t, first.Tier, n, 1, 1+int(n)*3000%(12*page)))
		ks = append(ks, chains[n].Key(0))
	}
	p, _ := first.reader.Find(ks[7])
	b, err := first.Get(t.Context(), ks[7], nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Bytes()[0] ^= 1
	b.Release()
	left, err := manifest.Open(m.File(), 4*mib)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = left.Close() })
	next := newShown(t, first.arena.Renew(), nil)
	cpu.Resume(next.Tier, left, false, func([]tier.Resumed) {})
	if there := next.check(t, ks); there != 0 {
		t.Fatalf("%d chunks are found that nothing has proved", there)
	}
	next.beside(t, func(r *rand.Rand) (key.Key, bool) { return ks[r.IntN(len(ks))], true }, func() error {
		var work errgroup.Group
		work.Go(func() error { _, err := cpu.Prove(t.Context(), next.Tier, left); return err })
		work.Go(func() error { return next.churn(t, 1, chains[:40]) })
		work.Go(func() error { return next.churn(t, 2, chains[:40]) })
		return work.Wait()
	})
	if there := next.check(t, ks); there < 20-1 {
		t.Errorf("%d chunks are found at the end", there)
	}
	if got, ok := next.reader.Find(ks[7]); ok && got.Sum == p.Sum && got.Offset == p.Offset {
		if _, _, err := next.read(ks[7], make([]byte, mib)); err != nil {
			t.Error(err)
		}
	}
}

// A chunk that is deleted while a reader proves it does not come into the directory, from
// which nothing would clear it.
func TestDeletedWhileProved(t *testing.T) {
	const chunks = 12
	m, err := manifest.New(chunks * mib)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	first := newShown(t, newShared(t, chunks*mib), m)
	ks := tiertest.Keys(store(t, first.Tier, 1, chunks, mib), 0, chunks)
	left, err := manifest.Open(m.File(), chunks*mib)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = left.Close() })
	next := newShown(t, first.arena.Renew(), nil)
	cpu.Resume(next.Tier, left, false, func([]tier.Resumed) {})
	for i := range ks {
		var refs [1]tier.Ref
		held := make(chan int)
		go func() {
			n, _ := next.Hold(ledger.Daemon, ledger.IO, ks[i:i+1], refs[:])
			held <- n
		}()
		for next.Ledger().Stats().ProtectedBytes == 0 {
			runtime.Gosched()
		}
		if err := next.Delete(t.Context(), ks[i:i+1]); err != nil {
			t.Fatal(err)
		}
		next.Release(ledger.Daemon, ledger.IO, refs[:<-held])
		next.check(t, ks[:i+1])
	}
}
