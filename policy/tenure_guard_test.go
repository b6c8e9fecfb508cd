package policy

import "testing"

// TestGuard: until enough was observed, and in a small cache for ever, nothing is refused
// and the chunk asked for longest ago goes first, but for one that a client is done with.
func TestGuard(t *testing.T) {
	for name, c := range map[string]struct {
		tokens, requests int
		guarded          bool
	}{
		"few observations": {4096, 10, true},
		"small":            {16, 400, true},
		"neither":          {4096, 400, false},
	} {
		p := newTenure()
		id := ID(0)
		for ; id < 20; id++ {
			p.Observe(Request{Chain: []uint64{uint64(id) + 1}, ChunkTokens: c.tokens, Hint: Hint(id / 19)})
			p.Add(id, Meta{Hash: uint64(id) + 1, Size: 1})
		}
		for n := range c.requests { // one and the same again and again
			p.Observe(Request{Chain: []uint64{1, 100 + uint64(n)}, ChunkTokens: c.tokens})
		}
		if (p.cells.by == byUse) != c.guarded {
			t.Errorf("%s: victims are chosen by %d", name, p.cells.by)
		}
		if !c.guarded {
			continue
		}
		if !p.Admit(1000, 0) {
			t.Errorf("%s: a chunk is refused", name)
		}
		for n, want := range []ID{19, 1, 2, 3} {
			if got, _ := p.Evict(func(ID) bool { return true }); got != want {
				t.Errorf("%s: victim %d is %d, want %d", name, n, got, want)
			}
		}
		p.check(t)
	}
}

// TestCostStepsByHand: each step begins where the cost is √2 times the one before, and the
// last has no end.
func TestCostStepsByHand(t *testing.T) {
	for tokens, want := range map[int]uint8{
		0: 0, 12_426: 0, 12_427: 1, 29_999: 1, 30_000: 2, 54_852: 2, 54_853: 3, 89_999: 3, 90_000: 4, 209_999: 5, 210_000: 6, 1 << 40: 7,
	} {
		if got := costStep(tokens, 30_000); got != want {
			t.Errorf("%d tokens into a prompt: step %d, want %d", tokens, got, want)
		}
	}
	if got := costStep(1<<40, 0); got != 0 {
		t.Errorf("where costs do not count: step %d", got)
	}
}

// TestDeepGoesLater: of two chunks that are alike the one that takes longer to compute
// stays, where that counts.
func TestDeepGoesLater(t *testing.T) {
	for depth, want := range map[int]ID{0: 0, 1: 1} {
		p := newTenure()
		p.roomy, p.learner.seen = true, enoughSeen
		deep, flat := []uint64{1, 2, 3, 4}, []uint64{5}
		for _, chain := range [][]uint64{deep, flat} { // of the class of long prompts, both
			p.Observe(Request{Chain: chain, ChunkTokens: 4096, Tokens: 40_000, PrefillDepth: depth * 1000})
		}
		p.Add(0, Meta{Hash: 4, Size: 1})
		p.Add(1, Meta{Hash: 5, Size: 1})
		if got, _ := p.Evict(func(ID) bool { return true }); got != want {
			t.Errorf("prefill depth %d: chunk %d goes, want %d", depth*1000, got, want)
		}
		p.check(t)
	}
}
