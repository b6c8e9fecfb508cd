package cpu_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// noted is a tier that writes a manifest, and what a kill leaves of it.
type noted struct {
	*cpu.Tier
	arena    *arena.Arena
	manifest *cpu.Manifest
}

func newNoted(t *testing.T, a *arena.Arena, m *cpu.Manifest, withTTL func(key.Key) bool) *noted {
	t.Helper()
	var err error
	if m == nil {
		if m, err = cpu.NewManifest(a.Stats().CapacityBytes); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = m.Close() })
	a.NoteFrees(m.Clear)
	p, err := policy.New("lru", a.Stats().CapacityBytes)
	if err != nil {
		t.Fatal(err)
	}
	tr := cpu.New(cpu.Options{
		Arena: a, Manifest: m, HasTTL: withTTL, HighWatermark: 1, LowWatermark: 0.9,
		Ledger: ledger.New(ledger.Options{CapacityBytes: a.Stats().CapacityBytes, Policy: p, PolicyName: "lru"}),
	})
	return &noted{tr, a, m}
}

// resumed is what a process has found.
type resumed struct {
	list []tier.Resumed
	keys []key.Key
	lost int
	has  map[key.Key]bool
}

// killed is what the next process finds: the bytes of the arena and the manifest.
func (n *noted) killed(t *testing.T) (next *noted, r resumed) {
	t.Helper()
	files, err := n.arena.Files()
	if err != nil {
		t.Fatal(err)
	}
	bytes := n.arena.Stats().CapacityBytes
	a, err := arena.Adopt(arena.Files{Whole: another(t, files.Whole), Clients: another(t, files.Clients)}, arena.Options{CapacityBytes: bytes, Keep: true})
	if err != nil {
		t.Fatal(err)
	}
	m, left, err := cpu.OpenManifest(another(t, n.manifest.File()), bytes)
	if err != nil {
		t.Fatal(err)
	}
	next = newNoted(t, a, m, nil)
	r.has = map[key.Key]bool{}
	r.keys, r.lost = cpu.Resume(next.Tier, left, false, func(part []tier.Resumed) {
		r.list = append(r.list, part...)
		for _, e := range part {
			r.has[e.Key] = true
		}
	})
	return next, r
}

// another is a descriptor of its own of the same file.
func another(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}

func newShared(t *testing.T, bytes int64) *arena.Arena {
	t.Helper()
	a, err := arena.New(arena.Options{CapacityBytes: bytes, Keep: true})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// After any life of puts, evictions, deletes and moves the next process has the chunks that
// were resident, no other, and their bytes; and so has the one after it.
func TestResume(t *testing.T) {
	n := newNoted(t, newShared(t, 2*mib), nil, nil)
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
		next, r := n.killed(t)
		if r.lost != 0 || !maps.Equal(r.has, want) {
			t.Fatalf("round %d: %d chunks are resumed and %d lost, of %d", round, len(r.has), r.lost, len(want))
		}
		cpu.Reuse(next.Tier)
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
		if wrong, err := cpu.Prove(t.Context(), next.Tier, r.keys); wrong != 0 || err != nil {
			t.Fatalf("%d chunks are wrong, error %v", wrong, err)
		}
		n = next
	}
}

// Bytes that have changed are no hit, whether a reader or Prove comes first, and
// what follows them in the prompt is as before.
func TestResumeProves(t *testing.T) {
	n := newNoted(t, newShared(t, mib), nil, nil)
	c := store(t, n.Tier, 1, 20, 3*page)
	var refs [20]tier.Ref
	if got, err := n.Hold(ledger.Daemon, ledger.IO, tiertest.Keys(c, 0, 20), refs[:]); got != 20 {
		t.Fatal(err)
	}
	for _, i := range []int{4, 15} {
		refs[i].Block.Bytes()[100] ^= 1
	}
	next, r := n.killed(t)
	var held [20]tier.Ref
	if got, err := next.Hold(ledger.Daemon, ledger.IO, tiertest.Keys(c, 0, 20), held[:]); got != 4 || err != nil {
		t.Fatalf("%d chunks are held, error %v; the fifth is wrong", got, err)
	}
	next.Release(ledger.Daemon, ledger.IO, held[:4])
	if wrong, err := cpu.Prove(t.Context(), next.Tier, r.keys); wrong != 2 || err != nil {
		t.Errorf("%d are wrong, error %v", wrong, err)
	}
	for i := range 20 {
		if want := i != 4 && i != 15; next.Has(c.Key(i)) != want {
			t.Errorf("chunk %d is there: %t", i, !want)
		}
	}
	again, r := next.killed(t)
	if len(r.has) != 18 || again.Has(c.Key(4)) {
		t.Errorf("%d chunks after another kill", len(r.has))
	}
}

// Memory in use is used for nothing else until Reuse, in each process that follows: also that
// of chunks that are not to outlive the process, and of those that were removed under a
// reader. Fills get free memory, or nothing.
func TestNothingIsReused(t *testing.T) {
	withTTL := tiertest.Chain(2, 1)
	n := newNoted(t, newShared(t, mib), nil, func(k key.Key) bool { return k == withTTL.Key(0) })
	store(t, n.Tier, 2, 1, page)
	kept := store(t, n.Tier, 3, 1, page)
	removed := store(t, n.Tier, 4, 1, 5*page)
	var refs [1]tier.Ref
	if got, err := n.Hold(ledger.Daemon, ledger.IO, tiertest.Keys(removed, 0, 1), refs[:]); got != 1 {
		t.Fatal(err)
	}
	if err := n.Delete(t.Context(), tiertest.Keys(removed, 0, 1)); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		next, r := n.killed(t)
		if len(r.has) != 1 || !r.has[kept.Key(0)] {
			t.Fatalf("round %d: %d chunks are resumed", round, len(r.has))
		}
		if used := next.arena.Stats().UsedBytes; used != 7*page {
			t.Fatalf("round %d: %d bytes are in use", round, used)
		}
		n = next
	}
	if err := n.Delete(t.Context(), tiertest.Keys(kept, 0, 1)); err != nil {
		t.Fatal(err)
	}
	var d drops
	filled := 0
	for seed := uint64(10); ; seed++ {
		ref, _, err := n.Reserve(t.Context(), fillOf(ledger.Daemon, tiertest.Chain(seed, 1), 0, page, &d))
		if errors.Is(err, tier.ErrNoSpace) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		write(ref, tiertest.Chain(seed, 1).Key(0))
		n.Publish([]tier.Ref{ref}, false, false)
		filled++
	}
	if filled != mib/page-7 || n.Stats().Evictions > 0 {
		t.Errorf("%d chunks were stored, %d evicted", filled, n.Stats().Evictions)
	}
	freed := n.arena.Freed()
	cpu.Reuse(n.Tier)
	select {
	case <-freed:
	default:
		t.Error("nothing is free")
	}
	store(t, n.Tier, 5, 1, 7*page)
	if _, r := n.killed(t); len(r.has) != filled+1 {
		t.Errorf("%d chunks after another kill, of %d", len(r.has), filled+1)
	}
}

// Emptying that mistrust asks for while nothing may be reused is done afterwards.
func TestEmptiedAfterGuard(t *testing.T) {
	t.Cleanup(base.SurviveBroken())
	n := newNoted(t, newShared(t, 1000*page), nil, nil)
	c := store(t, n.Tier, 1, 100, page)
	next, _ := n.killed(t)
	for i := 99; i > 85; i-- {
		e, _ := next.Ledger().Find(c.Key(i))
		next.Ledger().PutAside(e.ID, "is to go")
	}
	var d drops
	next.Shrink(t.Context(), 0, d.take)
	if len(d) != 0 || !next.Crowded(0) {
		t.Fatalf("%d victims under guard; it asks to be emptied: %t", len(d), next.Crowded(0))
	}
	cpu.Reuse(next.Tier)
	next.Shrink(t.Context(), 0, d.take)
	if len(d) != 86 || next.Crowded(0) {
		t.Errorf("%d victims afterwards, want 86; it asks to be emptied: %t", len(d), next.Crowded(0))
	}
}

// A clean stop leaves order, uses, and the tiers below that have each chunk.
func TestLeave(t *testing.T) {
	n := newNoted(t, newShared(t, mib), nil, nil)
	var want []key.Key
	for seed := range uint64(20) {
		want = append(want, store(t, n.Tier, seed, 1, page).Key(0))
	}
	for i := 0; i < 20; i += 3 {
		n.Touch(want[i : i+1])
	}
	want = slices.Concat(slices.Collect(func(yield func(key.Key) bool) {
		for i, k := range want {
			if i%3 > 0 {
				yield(k)
			}
		}
	}), []key.Key{want[0], want[3], want[6], want[9], want[12], want[15], want[18]})
	if err := cpu.Leave(n.Tier); err != nil {
		t.Fatal(err)
	}
	next, r := n.killed(t)
	if len(r.list) != 20 || r.list[0].Hits != 0 || r.list[19].Hits != 1 {
		t.Fatalf("%d chunks, the last with %d uses", len(r.list), r.list[len(r.list)-1].Hits)
	}
	cpu.Reuse(next.Tier)
	for i, k := range want {
		if r.keys[i] != k {
			t.Fatalf("chunk %d is another one", i)
		}
		if !next.EvictOne(func(v tier.Victim) bool { v.Block.Release(); return v.Key == k }) || next.Has(k) {
			t.Fatalf("victim %d is another one", i)
		}
	}
}

// Doubts about a payload outlive a trip through the hands of a writer, and the end of
// Prove meanwhile.
func TestDoubtsLast(t *testing.T) {
	n := newNoted(t, newShared(t, mib), nil, nil)
	c := store(t, n.Tier, 1, 1, 3*page)
	var refs [1]tier.Ref
	ks := tiertest.Keys(c, 0, 1)
	if got, err := n.Hold(ledger.Daemon, ledger.IO, ks, refs[:]); got != 1 {
		t.Fatal(err)
	}
	refs[0].Block.Bytes()[100] ^= 1
	next, r := n.killed(t)
	var victim tier.Victim
	cpu.Reuse(next.Tier)
	if !next.EvictOne(func(v tier.Victim) bool { victim = v; return true }) {
		t.Fatal("nothing was evicted")
	}
	if _, err := cpu.Prove(t.Context(), next.Tier, r.keys); err != nil {
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

// Of two records of one key, as a kill amid the replacing of a value leaves them, the later
// one counts.
func TestLaterRecordCounts(t *testing.T) {
	n := newNoted(t, newShared(t, mib), nil, nil)
	first, second := store(t, n.Tier, 1, 1, page), store(t, n.Tier, 2, 1, page)
	var refs [1]tier.Ref
	if got, err := n.Hold(ledger.Daemon, ledger.IO, tiertest.Keys(second, 0, 1), refs[:]); got != 1 {
		t.Fatal(err)
	}
	b := refs[0].Block
	n.manifest.Put(b.ID(), &cpu.Record{Key: first.Key(0), Offset: b.Offset(), Size: uint32(b.Len()), Sum: b.Sum()})
	next, r := n.killed(t)
	got, err := next.Get(t.Context(), first.Key(0), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := tiertest.CheckPayload(second.Key(0), got.Bytes()); err != nil || r.lost != 0 {
		t.Errorf("not the later bytes: %v; %d lost", err, r.lost)
	}
	got.Release()
}

// An entry that has lost its block to another leaves the record of that as it is, whatever
// becomes of the entry.
func TestLostBlocksRecord(t *testing.T) {
	for name, end := range map[string]func(*noted, key.Key) error{
		"put aside": func(n *noted, k key.Key) error {
			var refs [1]tier.Ref
			_, err := n.Hold(ledger.Daemon, ledger.IO, []key.Key{k}, refs[:])
			return err
		},
		"removed": func(n *noted, k key.Key) error { return n.Delete(context.Background(), []key.Key{k}) },
		"evicted": func(n *noted, _ key.Key) error { n.EvictOne(func(tier.Victim) bool { return true }); return nil },
		"left": func(n *noted, k key.Key) error {
			n.Touch([]key.Key{k}) // the last to go is noted last
			return cpu.Leave(n.Tier)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(base.SurviveBroken())
			n := newNoted(t, newShared(t, 8*page), nil, nil)
			one := store(t, n.Tier, 1, 1, page)
			b, err := n.Get(t.Context(), one.Key(0), nil)
			if err != nil {
				t.Fatal(err)
			}
			b.Release()
			b.Release() // the entry's
			other := store(t, n.Tier, 2, 1, page)
			if err := end(n, one.Key(0)); err != nil {
				t.Fatal(err)
			}
			next, r := n.killed(t)
			if len(r.has) != 1 || !r.has[other.Key(0)] {
				t.Fatalf("%d chunks are resumed; the other is: %t", len(r.has), r.has[other.Key(0)])
			}
			got, err := next.Get(t.Context(), other.Key(0), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := tiertest.CheckPayload(other.Key(0), got.Bytes()); err != nil {
				t.Error(err)
			}
			got.Release()
		})
	}
}
