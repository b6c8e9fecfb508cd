package stack_test

import (
	"testing"

	"github.com/kvstored/kvstored/internal/hybrid"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// A state costs the chunks that it makes usable beyond the length before it: under gdsf the state of a
// long prompt outlives that of a short step behind another.
func TestCostOfABoundary(t *testing.T) {
	groups := hybrid.Family{{Chunk: 16}, {Kind: hybrid.State, Chunk: 16}}
	r := newRig(t, options{capacity: 1 * mib, lone: true, policy: "gdsf"})
	store := func(root byte, steps int) (last key.Key) {
		f := newFamily(groups, 1, steps)
		for g := range f.Chains {
			c := &f.Chains[g][0]
			for i := range c.Hashes {
				c.Hashes[i] = key.Hash{byte(i + 1), root}
			}
		}
		at, err := r.Reached(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		wanted := r.Wanted(f, at)
		r.storeMissing(&f.Chains[0][0], 0, steps)
		for i, is := range wanted[1] {
			if is && r.Where(f.Chains[1][0].Key(i)) == 0 {
				r.put(&f.Chains[1][0], i, i+1, 64*kib)
				last = f.Chains[1][0].Key(i)
			}
		}
		return last
	}
	far := store(1, 12)  // 12 chunks
	near := store(1, 13) // one more
	l := r.hot.Ledger()
	for root := byte(2); root < 40; root++ {
		store(root, 1)
		_, a := l.Find(far)
		_, b := l.Find(near)
		switch {
		case a == ledger.Resident && b == ledger.Resident:
		case a == ledger.Resident:
			return
		default:
			t.Fatalf("prompt %d: the state that makes 12 chunks usable has gone, that of one more chunk is %v", root, b)
		}
	}
	t.Fatal("no state has gone")
}

// The table of worths is bounded; forgotten chunks count as one.
func TestWorthsAreBounded(t *testing.T) {
	groups := hybrid.Family{{Chunk: 16}, {Kind: hybrid.Window, Tokens: 16 * 500, Chunk: 16}}
	r, f := newRig(t, options{capacity: 1 * mib, lone: true}), newFamily(groups, 1, 600)
	for root := range 200 {
		for g := range f.Chains {
			f.Chains[g][0].Space[2] = byte(root + 1)
		}
		r.Wanted(f, stack.Reached{})
	}
	if n := r.Worths(); n == 0 || n > 1<<16 {
		t.Errorf("%d chunks are known", n)
	}
	if m, err := r.MatchFamily(t.Context(), f, tier.All, 9600, nil); err != nil || m.Tokens != 0 {
		t.Error(m, err)
	}
}
