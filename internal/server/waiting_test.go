package server

import (
	"testing"

	"github.com/kvstored/kvstored/tier/tiertest"
)

// TestWaitingNextTurns: what waits for its next turn is bounded in number and
// in length.
func TestWaitingNextTurns(t *testing.T) {
	s := new(Server)
	s.now.Store(&Settings{Prefetch: Prefetch{NextTurnBytes: 4 * minChunkBytes}})
	s.next.server, s.next.grew = s, make(chan struct{}, 1)
	for i := range maxNextTurns + 5 {
		s.next.add(tiertest.Chain(uint64(i), 5))
	}
	if n := len(s.next.mu.waiting); n > 0 {
		t.Errorf("%d prompts wait that are too long", n)
	}
	for i := range maxNextTurns + 5 {
		s.next.add(tiertest.Chain(uint64(i), 4))
	}
	if n := len(s.next.mu.waiting); n != maxNextTurns {
		t.Errorf("%d prompts wait, want %d", n, maxNextTurns)
	}
}
