package store_test

import (
	"maps"
	"testing"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// TestSpaces: spaces are counted in every tier, and DRAM's share apart; a deleted
// space is not counted any more. There are more of them than one step counts.
func TestSpaces(t *testing.T) {
	r := newRig(t, options{})
	const bytes = 4 * kib
	want := make(map[key.SpaceID]int)
	first := *tiertest.Chain(1, 3)
	for i := range 300 {
		c := first
		c.Space[0], c.Space[1] = byte(i), byte(i>>8)
		n := 1 + i%2
		r.put(&c, 0, n, bytes)
		want[c.Space] = n
	}
	if got := r.Operator.Spaces(); !maps.Equal(got, want) {
		t.Errorf("%d spaces: %v", len(got), got)
	}
	one := first
	one.Space[0], one.Space[1] = 1, 0
	if n := r.Operator.HotBytes(one.Space); n != 2*bytes {
		t.Errorf("%d bytes in DRAM, want %d", n, 2*bytes)
	}
	r.flush()
	if err := r.hot.Delete(t.Context(), tiertest.Keys(&one, 0, 2)); err != nil {
		t.Fatal(err)
	}
	if n, all := r.Operator.HotBytes(one.Space), r.Operator.Spaces(); n != 0 || !maps.Equal(all, want) {
		t.Errorf("on disk only: %d bytes in DRAM, %d spaces", n, len(all))
	}
	if _, err := r.Remover.DeleteSpace(t.Context(), one.Space); err != nil {
		t.Fatal(err)
	}
	delete(want, one.Space)
	if got := r.Operator.Spaces(); !maps.Equal(got, want) {
		t.Errorf("after a delete: %d spaces, want %d", len(got), len(want))
	}
}
