package stack_test

import (
	"testing"

	"github.com/kvstored/kvstored/internal/hybrid"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// The groups of a family may be stored before it is asked for, many chunks of them, and each
// may go and come back: the marks follow.
func TestMarksFollow(t *testing.T) {
	const n = 700
	groups := hybrid.Family{{Chunk: 16}, {Kind: hybrid.State, Chunk: 16}, {Kind: hybrid.Window, Tokens: 32, Chunk: 16}}
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
				if _, err := r.Delete(t.Context(), tiertest.Keys(&c[0], i, i+1)); err != nil {
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
		if _, err := r.Delete(t.Context(), tiertest.Keys(full, i, i+1)); err != nil {
			t.Fatal(err)
		}
	}
	check("no full chunk is there")
	r.storeMissing(full, 0, n)
	check("windows and states were there first")
}
