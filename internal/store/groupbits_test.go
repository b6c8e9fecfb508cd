package store_test

import (
	"testing"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// The groups of a family may be stored before it is asked for, many chunks of them, and each
// may go and come back: the marks follow.
func TestMarksFollow(t *testing.T) {
	const n = 700
	groups := index.Family{{Chunk: 16}, {Kind: index.State, Chunk: 16}, {Kind: index.Window, Tokens: 32, Chunk: 16}}
	r, f := newRig(t, options{capacity: 16 * mib, lone: true}), newFamily(groups, 1, n)
	full, state, window := &f.Chains[0][0], &f.Chains[1][0], &f.Chains[2][0]
	check := func(what string) {
		t.Helper()
		for range 4 { // some of what was there before is marked each time
			for _, most := range []int{n * 16, 650 * 16, 300 * 16, 5 * 16} {
				r.checkFamily(f, tier.All, most, nil)
			}
		}
		if t.Failed() {
			t.Fatal(what)
		}
	}
	r.storeMissing(state, 0, n)
	r.storeMissing(window, 0, 690)
	r.storeMissing(full, 0, n)
	check("stored before")
	drop := func(ks ...int) {
		for _, i := range ks {
			for _, c := range f.Chains {
				if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(&c[0], i, i+1)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	drop(689, 688, 400)
	check("deleted in all groups")
	r.storeMissing(full, 0, n)
	check("the full chunks are back")
	r.storeMissing(window, 0, n)
	r.storeMissing(state, 689, 690)
	check("all are back")
	for i := n - 1; i >= 0; i-- {
		if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(full, i, i+1)); err != nil {
			t.Fatal(err)
		}
	}
	check("no full chunk is there")
	r.storeMissing(full, 0, n)
	check("windows and states were there first")
}

// A bit is free again with the last chunk of one of its spaces, so that models that come and go
// leave none behind; one that comes back is found again.
func TestGroupBitsEnd(t *testing.T) {
	groups := index.Family{{Chunk: 16}, {Kind: index.State, Chunk: 16}}
	r := newRig(t, options{capacity: 16 * mib, lone: true})
	for n := range 40 {
		f := newFamily(groups, 1, 5)
		for g := range f.Chains {
			f.Chains[g][0].Space[2] = byte(n + 1)
			r.storeMissing(&f.Chains[g][0], 0, 5)
		}
		r.checkFamily(f, tier.All, 80, nil)
		if got := r.GroupBits(); got != 1 {
			t.Fatalf("model %d: %d spaces with bits; want its own", n, got)
		}
		gone := &f.Chains[n%2][0] // of the states, or the full group, first
		if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(gone, 0, 5)); err != nil {
			t.Fatal(err)
		}
		if got := r.GroupBits(); got != 0 {
			t.Fatalf("model %d: %d spaces with bits without chunks", n, got)
		}
		r.storeMissing(gone, 0, 4)
		r.checkFamily(f, tier.All, 80, nil)
		for g := range f.Chains {
			if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(&f.Chains[g][0], 0, 5)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Spaces without chunks, as a client can open very many, keep no other space from its mark.
func TestEmptySpacesKeepNoMarks(t *testing.T) {
	groups := index.Family{{Chunk: 16}, {Kind: index.State, Chunk: 16}}
	r, f := newRig(t, options{capacity: 16 * mib, lone: true}), newFamily(groups, 1, 5)
	state := f.Chains[1][0].Space
	ask := func(n byte) {
		f.Chains[1][0].Space[2] = n
		r.checkFamily(f, tier.All, 80, nil)
	}
	ask(1)
	if got := r.GroupBits(); got != 0 {
		t.Fatalf("%d bits of spaces without chunks", got)
	}
	r.storeMissing(&f.Chains[0][0], 0, 5)
	for n := range byte(20) {
		ask(n + 1)
	}
	f.Chains[1][0].Space = state
	r.storeMissing(&f.Chains[1][0], 0, 5)
	r.checkFamily(f, tier.All, 80, nil)
	if !r.Marked(f.Chains[0][0].Space, state) {
		t.Error("a space with chunks has no mark")
	}
}

// A space that is large when it is first asked for is swept in parts, also while the index
// grows and shrinks beside it.
func TestSweepBesideChanges(t *testing.T) {
	const n, each = 7_000, 7
	groups := index.Family{{Chunk: 16}, {Kind: index.State, Chunk: 16}}
	r, f := newRig(t, options{capacity: 80 * mib, lone: true}), newFamily(groups, 1, n)
	full, state := &f.Chains[0][0], &f.Chains[1][0]
	for i := each - 1; i < n; i += each {
		r.put(state, i, i+1, 4*kib)
	}
	r.put(full, 0, n, 4*kib)
	other := *state
	other.Space[3] = 9
	last := n / each * each
	for i := range 8 {
		r.put(&other, i*100, i*100+100, 4*kib)
		m, err := r.Lookups.Plan(t.Context(), f, tier.All, n*16, nil)
		if err != nil || m.End != last*16 {
			t.Fatalf("request %d: %d tokens, %v; want %d", i, m.End, err, last*16)
		}
		if _, err := r.Remover.Delete(t.Context(), tiertest.Keys(state, last-1, last)); err != nil {
			t.Fatal(err)
		}
		last -= each
	}
	if r.GroupBits() != 1 {
		t.Errorf("%d spaces with bits", r.GroupBits())
	}
}
