package server

import (
	"testing"
	"time"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// TestHintsEnd: a hint that nothing proves wrong is right when it is old, or
// one too many; a client has so many open and no more.
func TestHintsEnd(t *testing.T) {
	var h hints
	h.init()
	now := time.Unix(0, 0)
	h.now = func() time.Time { return now }
	done, goes := advice{hint: policy.Done, measured: true}, advice{hint: policy.Continues, measured: true}
	prompt := func(n int) *key.Chain { return tiertest.Chain(uint64(n), 2) }
	for n := range maxClientHints + 5 {
		if heeded := h.give(1, prompt(n), &done); heeded != (n < maxClientHints) {
			t.Fatalf("hint %d is heeded: %v", n, heeded)
		}
	}
	if !h.give(2, prompt(1<<20), &goes) {
		t.Error("the budget of one client is another's")
	}
	h.asked(prompt(3), "")
	h.asked(prompt(3), "") // known already
	want := HintsStats{Done: HintStats{Given: maxClientHints, Wrong: 1}, Continues: HintStats{Given: 1}, OverBudget: 5}
	if got := h.stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	now = now.Add(hintFor)
	want.Done.Right, want.Continues.Wrong = maxClientHints-1, 1
	if got := h.stats(); got != want {
		t.Errorf("after a while: %+v, want %+v", got, want)
	}
	if len(h.mu.open)+len(h.mu.order)+len(h.mu.client) > 0 {
		t.Errorf("%d hints, %d in order, %d clients are left", len(h.mu.open), len(h.mu.order), len(h.mu.client))
	}
	for n := range maxHints + 10 {
		h.give(uint64(n/maxClientHints), prompt(n), &done)
	}
	h.asked(prompt(1<<21), "")
	if len(h.mu.open) > maxHints || len(h.mu.order) > maxHints {
		t.Errorf("%d hints are open, %d in order", len(h.mu.open), len(h.mu.order))
	}
}

// TestHintsAreFound: a long prompt is searched to its bound.
func TestHintsAreFound(t *testing.T) {
	var h hints
	h.init()
	goes := advice{hint: policy.Continues, measured: true}
	long := tiertest.Chain(1, maxHintChunks+1)
	for n, i := range []int{0, hintRound - 1, hintRound, 5*hintRound + 7, maxHintChunks - 1} {
		part := *long
		part.Hashes, part.Tokens = long.Hashes[:i+1], long.Tokens[:i+1]
		h.give(1, &part, &goes)
		h.give(1, tiertest.Chain(uint64(2+n), 3), &goes) // of others
	}
	h.give(1, long, &goes)
	h.asked(long, "")
	if got, want := h.stats().Continues, (HintStats{Given: 11, Right: 5}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
