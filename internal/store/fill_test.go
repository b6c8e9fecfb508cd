package store_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

func TestReserveCommitHoldRelease(t *testing.T) {
	r := newRig(t, options{lone: true})
	o := r.Leases.NewOwner()
	c := tiertest.Chain(1, 4)
	grants, err := r.reserve(o, c, 0, 4, size)
	if err != nil {
		t.Fatal(err)
	}
	r.wantIn(c, 0, 0) // invisible until committed
	commit(r.Store, c, 0, fill(c, 0, grants))
	if m := r.match(c); m.Chunks != 4 || m.Hot != 4 || m.Tokens != 4*tiertest.ChunkTokens {
		t.Errorf("a lookup found %+v; want 4 chunks, all in DRAM", m)
	}
	refs := make([]tier.Ref, 4)
	if n, err := r.Leases.Hold(o, ledger.Lease, c, 0, 4, refs); n != 4 || err != nil {
		t.Fatalf("held %d, error %v; want all 4", n, err)
	}
	if err := r.hot.Delete(t.Context(), tiertest.Keys(c, 1, 2)); err != nil {
		t.Fatal(err)
	}
	for i, ref := range refs { // also of the one that was deleted
		if err := tiertest.CheckPayload(c.Key(i), ref.Block.Bytes()); err != nil {
			t.Error(err)
		}
	}
	r.Leases.Release(o, ledger.Lease, refs)
	if n, err := r.Leases.Hold(o, ledger.Lease, c, 0, 4, refs); n != 1 || err != nil {
		t.Errorf("held %d, error %v; want only what lies before the deleted chunk", n, err)
	}
	r.Leases.Release(o, ledger.Lease, refs[:1])
	r.wantIn(c, 1, 0) // the hold that stopped short has told the index
	r.Leases.CloseOwner(o)
}

// Chunks that stand alone are found, stored and forgotten one by one, with or
// without gaps between them, more of them than are settled at a time.
func TestAlone(t *testing.T) {
	r := newRig(t, options{capacity: 32 * mib})
	const n = 600
	c := tiertest.Chain(1, n)
	c.Chained, c.Alone = false, true
	part := func(from, to int) *key.Chain {
		return &key.Chain{Space: c.Space, Hashes: c.Hashes[from:to], Tokens: c.Tokens[from:to], Alone: true}
	}
	r.put(part(100, 300), 0, 200, 4*kib)
	o := r.Leases.NewOwner()
	grants, err := r.reserve(o, c, 0, n, 4*kib)
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range grants {
		if want := i >= 100 && i < 300; (g.Status == store.Exists) != want {
			t.Fatalf("chunk %d is %d", i, g.Status)
		}
	}
	commit(r.Store, c, 0, fill(c, 0, grants[:100]))
	for _, g := range grants[300:] {
		r.Filler.Abort([]tier.Ref{g.Ref})
	}
	if m := r.match(c); m.Chunks != 300 {
		t.Errorf("%d chunks match, want 300", m.Chunks)
	}
	back := part(0, 300)
	slices.Reverse(back.Hashes) // shared with c: any order will do
	if m := r.match(back); m.Chunks != 300 {
		t.Errorf("%d chunks match in another order, want 300", m.Chunks)
	}
	if _, err := r.Remover.Delete(t.Context(), []key.Key{back.Key(0), back.Key(2)}); err != nil {
		t.Fatal(err)
	}
	if m := r.match(part(1, 300)); m.Chunks != 1 {
		t.Errorf("%d chunks match before one that was deleted, want 1", m.Chunks)
	}
	if m := r.match(part(3, 300)); m.Chunks != 297 {
		t.Errorf("%d chunks match behind it, want 297", m.Chunks)
	}
	prompt := tiertest.Chain(2, 2)
	r.put(prompt, 0, 2, size)
	stray := &key.Chain{Space: prompt.Space, Hashes: prompt.Hashes[1:], Tokens: prompt.Tokens[1:], Alone: true}
	if m := r.match(stray); m.Chunks != 1 {
		t.Error("a chunk of a prompt is not found by itself")
	}
	r.Leases.CloseOwner(o)
}

// To a policy that plans, each chunk that stands alone is a prompt.
func TestAloneIsPlanned(t *testing.T) {
	r := newRig(t, options{lone: true})
	if err := r.Operator.SetPolicy(tier.CPU, "tenure"); err != nil {
		t.Fatal(err)
	}
	c := tiertest.Chain(1, 40)
	c.Chained, c.Alone = false, true
	for range 3 {
		r.Planning.Observe(c, store.Prompt{})
	}
	if n := r.Planning.Admit(c, 0, c.Len(), 4*kib); n != c.Len() {
		t.Errorf("%d of %d chunks are worth storing where there is room for all", n, c.Len())
	}
	r.put(c, 0, 40, 4*kib)
	if m := r.match(c); m.Chunks != 40 {
		t.Errorf("%d chunks match, want 40", m.Chunks)
	}
}

func TestReserveSaysWhatIsThere(t *testing.T) {
	r := newRig(t, options{lone: true})
	one, two := r.Leases.NewOwner(), r.Leases.NewOwner()
	c := tiertest.Chain(1, 3)
	r.put(c, 0, 1, size)
	mine, err := r.reserve(one, c, 1, 2, size)
	if err != nil {
		t.Fatal(err)
	}
	statuses := func() (st []store.GrantStatus) {
		t.Helper()
		grants, err := r.reserve(two, c, 0, 3, size)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range grants {
			if st = append(st, g.Status); g.Status == store.Granted {
				r.Filler.Abort([]tier.Ref{g.Ref})
			} else if g.Ref.Valid() {
				t.Errorf("status %d with a reference", g.Status)
			}
		}
		return st
	}
	if got, want := statuses(), []store.GrantStatus{store.Exists, store.Pending, store.Granted}; !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
	r.Filler.Abort([]tier.Ref{mine[0].Ref})
	if got, want := statuses(), []store.GrantStatus{store.Exists, store.Granted, store.Granted}; !slices.Equal(got, want) {
		t.Errorf("after the abort: %v; want %v", got, want)
	}
	r.Leases.CloseOwner(one)
	r.Leases.CloseOwner(two)
}

func TestReserveExistsBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.putChain(1, 2)
		r.flush()
		r.evict()
		r.wantIn(c, 0, 2)
		grants, err := r.reserve(ledger.Daemon, c, 0, 2, size)
		if err != nil || grants[0].Status != store.Exists || grants[1].Status != store.Exists {
			t.Errorf("got %v, error %v; want two that exist", grants, err)
		}
	})
}

func TestReserveLongestRun(t *testing.T) {
	r := newRig(t, options{lone: true, limits: ledger.Limits{Lease: 3 * size}})
	o := r.Leases.NewOwner()
	c := tiertest.Chain(1, 5)
	grants, err := r.reserve(o, c, 0, 5, size)
	if len(grants) != 3 || !errors.Is(err, tier.ErrOverBudget) {
		t.Errorf("granted %d, error %v; want 3 and that it is over budget", len(grants), err)
	}
	other := r.Leases.NewOwner()
	if _, err := r.reserve(other, tiertest.Chain(2, 1), 0, 1, size); !errors.Is(err, tier.ErrNoSpace) {
		t.Errorf("another owner got %v; want no space", err)
	}
	for _, g := range grants {
		r.Filler.Abort([]tier.Ref{g.Ref})
	}
	if _, err := r.reserve(o, tiertest.Chain(3, 1), 0, 1, 65*mib); !errors.Is(err, tier.ErrTooLarge) && !errors.Is(err, tier.ErrOverBudget) {
		t.Errorf("more than a block can be: %v", err)
	}
	r.Leases.CloseOwner(o)
	r.Leases.CloseOwner(other)
}

// A chain that puts a known chunk elsewhere is served by its keys; the chain that was
// there first is untouched.
func TestCommitContradiction(t *testing.T) {
	r := newRig(t, options{lone: true})
	first := r.putChain(1, 3)
	liar := tiertest.Chain(1, 3)
	liar.Hashes = []key.Hash{first.Hashes[1], tiertest.Chain(2, 1).Hashes[0], first.Hashes[2]}
	liar.Chained = false
	r.wantIn(liar, 1, 0) // the first is known, though not as the first of a prompt
	r.put(liar, 1, 2, size)
	r.wantIn(liar, 3, 0)
	r.wantIn(first, 3, 0)
}

// A chunk that would become its own ancestor stands alone.
func TestReserveCycle(t *testing.T) {
	r := newRig(t, options{lone: true})
	c := r.putChain(1, 2)
	if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(c, 0, 1)); err != nil {
		t.Fatal(err)
	}
	loop := tiertest.Chain(1, 2)
	slices.Reverse(loop.Hashes)
	loop.Chained = false
	r.put(loop, 1, 2, size)
	r.wantIn(loop, 2, 0)
	r.wantIn(c, 2, 0)
}

func TestDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.putChain(1, 4)
		r.flush()
		n, err := r.Remover.Delete(t.Context(), append(tiertest.Keys(c, 1, 2), tiertest.Chain(9, 1).Key(0)))
		if n != 1 || err != nil {
			t.Errorf("%d were known, error %v; want 1", n, err)
		}
		r.wantIn(c, 1, 0)
		if r.disk.Has(c.Key(1)) || r.hot.Has(c.Key(1)) {
			t.Error("a deleted chunk is still in a tier")
		}
		r.put(c, 1, 2, size) // rejoins what is below
		r.wantIn(c, 4, 0)
	})
}

func TestDeleteSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 1 * mib})
		c := tiertest.Chain(1, 30)
		for i := range 30 { // more than DRAM holds, so some are on disk only
			r.put(c, i, i+1, size)
			r.flush()
			synctest.Wait() // the watermark makes room
		}
		other := r.putChain(2, 2)
		r.flush()
		synctest.Wait() // not in the middle of the deletion
		n, err := r.Remover.DeleteSpace(t.Context(), c.Space)
		if n != 30 || err != nil {
			t.Errorf("%d were known, error %v; want 30", n, err)
		}
		r.wantIn(c, 0, 0)
		r.wantIn(other, 2, 0)
		if st := r.Store.Operator.Stats(); st.Chunks != 2 || st.Placeholders != 0 {
			t.Errorf("the index has %d chunks and %d placeholders; want 2 and 0", st.Chunks, st.Placeholders)
		}
	})
}
