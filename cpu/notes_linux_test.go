package cpu_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/manifest"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// noted is a tier that writes a manifest, and what a kill leaves of it.
type noted struct {
	*cpu.Tier
	arena    *arena.Arena
	manifest *manifest.Manifest
}

func newNoted(t *testing.T, a *arena.Arena, direct bool, passing func(key.Key) bool) *noted {
	t.Helper()
	n := &noted{arena: a}
	var err error
	if n.manifest, err = manifest.New(a.Stats().CapacityBytes); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.manifest.Close() })
	if direct {
		a.NoteFrees(n.manifest.Clear)
	}
	p, err := policy.New("lru", a.Stats().CapacityBytes)
	if err != nil {
		t.Fatal(err)
	}
	n.Tier = cpu.New(cpu.Options{
		Arena: a, Manifest: n.manifest, Direct: direct, Passing: passing, HighWatermark: 1, LowWatermark: 0.9,
		Ledger: ledger.New(ledger.Options{CapacityBytes: a.Stats().CapacityBytes, Policy: p, PolicyName: "lru"}),
	})
	return n
}

// killed is what the next process finds: the bytes of the arena and the manifest.
func (n *noted) killed(t *testing.T, direct bool) (next *noted, left *manifest.Left, lost int, resumed map[key.Key]bool) {
	t.Helper()
	left, err := manifest.Open(n.manifest.File(), n.arena.Stats().CapacityBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = left.Close() })
	next = newNoted(t, n.arena.Renew(), direct, nil)
	resumed = map[key.Key]bool{}
	lost = cpu.Resume(next.Tier, left, false, func(part []tier.Resumed) {
		for _, r := range part {
			resumed[r.Key] = true
		}
	})
	if err := next.Ledger().Check(); err != nil {
		t.Fatal(err)
	}
	return next, left, lost, resumed
}

func newShared(t *testing.T, bytes int64) *arena.Arena {
	t.Helper()
	a, err := arena.New(arena.Options{CapacityBytes: bytes, HandOver: true})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// After any life of puts, evictions, deletes and moves the next process has the chunks that
// were resident, no other, and their bytes; and so has the one after it.
func TestResume(t *testing.T) {
	n := newNoted(t, newShared(t, 2*mib), false, nil)
	rng := rand.New(rand.NewPCG(1, 2))
	var seed uint64
	var all []key.Key
	for round := range 6 {
		var d drops
		for range 300 {
			seed++
			c := tiertest.Chain(seed, 1+rng.IntN(4))
			for i := range c.Len() {
				ref, st, err := n.Reserve(t.Context(), fillOf(ledger.Daemon, c, i, 1+rng.IntN(20*page), &d))
				if err != nil || st != ledger.Absent {
					t.Fatalf("state %d, error %v", st, err)
				}
				write(ref, c.Key(i))
				all = append(all, c.Key(i))
				if rng.IntN(10) == 0 {
					n.Abort([]tier.Ref{ref})
					break
				}
				n.Publish([]tier.Ref{ref}, false, false)
			}
			if rng.IntN(5) == 0 {
				if err := n.Delete(t.Context(), tiertest.Keys(c, 0, 1)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n.Stats().Counters["moved"] == 0 || n.Stats().Evictions == 0 {
			t.Errorf("round %d: nothing was moved or evicted", round)
		}
		want := map[key.Key]bool{}
		for _, k := range all {
			if n.Has(k) {
				want[k] = true
			}
		}
		next, left, lost, resumed := n.killed(t, false)
		if lost != 0 || !maps.Equal(resumed, want) {
			t.Fatalf("round %d: %d chunks are resumed and %d lost, of %d", round, len(resumed), lost, len(want))
		}
		for k := range want {
			b, err := next.Get(context.Background(), k, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := tiertest.CheckPayload(k, b.Bytes()); err != nil {
				t.Error(err)
			}
			b.Release()
		}
		if wrong, err := cpu.Prove(t.Context(), next.Tier, left); wrong != 0 || err != nil {
			t.Fatalf("%d chunks are wrong, error %v", wrong, err)
		}
		n = next
	}
}

// Bytes that have changed are no hit, whether a reader or Prove comes first, and
// what follows them in the prompt is as before.
func TestResumeProves(t *testing.T) {
	n := newNoted(t, newShared(t, mib), false, nil)
	c := store(t, n.Tier, 1, 20, 3*page)
	var refs [20]tier.Ref
	if got, err := n.Hold(ledger.Daemon, ledger.IO, tiertest.Keys(c, 0, 20), refs[:]); got != 20 {
		t.Fatal(err)
	}
	for _, i := range []int{4, 15} {
		refs[i].Block.Bytes()[100] ^= 1
	}
	next, left, _, _ := n.killed(t, false)
	var held [20]tier.Ref
	if got, err := next.Hold(ledger.Daemon, ledger.IO, tiertest.Keys(c, 0, 20), held[:]); got != 4 || err != nil {
		t.Fatalf("%d chunks are held, error %v; the fifth is wrong", got, err)
	}
	next.Release(ledger.Daemon, ledger.IO, held[:4])
	if wrong, err := cpu.Prove(t.Context(), next.Tier, left); wrong != 2 || err != nil {
		t.Errorf("%d are wrong, error %v", wrong, err)
	}
	for i := range 20 {
		if want := i != 4 && i != 15; next.Has(c.Key(i)) != want {
			t.Errorf("chunk %d is there: %t", i, !want)
		}
	}
	again, _, _, resumed := next.killed(t, false)
	if len(resumed) != 18 || again.Has(c.Key(4)) {
		t.Errorf("%d chunks after another kill", len(resumed))
	}
}

// What a client was writing into the arena stays out of use, in each process that follows;
// chunks that are not to outlive the process do not.
func TestResumeLeavesOut(t *testing.T) {
	passing := tiertest.Chain(2, 1)
	n := newNoted(t, newShared(t, mib), true, func(k key.Key) bool { return k == passing.Key(0) })
	store(t, n.Tier, 2, 1, page)
	kept := store(t, n.Tier, 3, 1, page)
	var d drops
	ref, _, err := n.Reserve(t.Context(), fillOf(ledger.Daemon, tiertest.Chain(4, 1), 0, 5*page, &d))
	if err != nil {
		t.Fatal(err)
	}
	gone, _, err := n.Reserve(t.Context(), fillOf(ledger.Daemon, tiertest.Chain(5, 1), 0, 5*page, &d))
	if err != nil {
		t.Fatal(err)
	}
	n.Abort([]tier.Ref{gone})
	at := ref.Block.Offset()
	for round := range 3 {
		next, _, _, resumed := n.killed(t, true)
		if len(resumed) != 1 || !resumed[kept.Key(0)] {
			t.Fatalf("round %d: %d chunks are resumed", round, len(resumed))
		}
		if used := next.arena.Stats().UsedBytes; used != 6*page {
			t.Errorf("round %d: %d bytes are in use", round, used)
		}
		if _, ok := next.arena.Place(at, page, 0, true); ok {
			t.Errorf("round %d: what a client writes is handed out", round)
		}
		n = next
	}
}

// Doubts about a payload outlive a trip through the hands of a writer, and the end of
// Prove meanwhile.
func TestDoubtsLast(t *testing.T) {
	n := newNoted(t, newShared(t, mib), false, nil)
	c := store(t, n.Tier, 1, 1, 3*page)
	var refs [1]tier.Ref
	ks := tiertest.Keys(c, 0, 1)
	if got, err := n.Hold(ledger.Daemon, ledger.IO, ks, refs[:]); got != 1 {
		t.Fatal(err)
	}
	refs[0].Block.Bytes()[100] ^= 1
	next, left, _, _ := n.killed(t, false)
	var victim tier.Victim
	if !next.EvictOne(func(v tier.Victim) bool { victim = v; return true }) {
		t.Fatal("nothing was evicted")
	}
	if _, err := cpu.Prove(t.Context(), next.Tier, left); err != nil {
		t.Fatal(err)
	}
	var d drops
	f := fillOf(ledger.Daemon, c, 0, 3*page, &d)
	f.Block = victim.Block
	ref, st, err := next.Reserve(t.Context(), f)
	if err != nil || st != ledger.Absent {
		t.Fatalf("state %d, error %v", st, err)
	}
	next.Publish([]tier.Ref{ref}, false, false)
	victim.Block.Release()
	if got, _ := next.Hold(ledger.Daemon, ledger.IO, ks, refs[:]); got != 0 || next.Has(ks[0]) {
		t.Errorf("a payload that nothing has proved is given out: %d held", got)
	}
}

// A hand-over passes on what was proved only.
func TestSaveLeavesDoubtsOut(t *testing.T) {
	for _, proved := range []bool{false, true} {
		n := newNoted(t, newShared(t, mib), false, nil)
		store(t, n.Tier, 1, 7, page)
		next, left, _, _ := n.killed(t, false)
		want := 0
		if proved {
			want = 7
			if _, err := cpu.Prove(t.Context(), next.Tier, left); err != nil {
				t.Fatal(err)
			}
		}
		f, err := os.Create(t.TempDir() + "/directory")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if got, err := cpu.Save(next.Tier, f); err != nil || got != want {
			t.Errorf("proved %t: %d entries, error %v; want %d", proved, got, err, want)
		}
	}
}

// Of two records of one key, as a kill amid the replacing of a value leaves them, the later
// one counts.
func TestLaterRecordCounts(t *testing.T) {
	n := newNoted(t, newShared(t, mib), false, nil)
	first, second := store(t, n.Tier, 1, 1, page), store(t, n.Tier, 2, 1, page)
	var refs [1]tier.Ref
	if got, err := n.Hold(ledger.Daemon, ledger.IO, tiertest.Keys(second, 0, 1), refs[:]); got != 1 {
		t.Fatal(err)
	}
	b := refs[0].Block
	n.manifest.Put(b.ID(), &manifest.Record{Key: first.Key(0), Offset: b.Offset(), Size: uint32(b.Len()), Sum: b.Sum()})
	next, _, lost, _ := n.killed(t, false)
	got, err := next.Get(t.Context(), first.Key(0), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := tiertest.CheckPayload(second.Key(0), got.Bytes()); err != nil || lost != 1 {
		t.Errorf("not the later bytes: %v; %d lost", err, lost)
	}
	got.Release()
}
