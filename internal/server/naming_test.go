package server

import (
	"testing"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/key"
)

// TestNamingOfEmptySpaces: a space is announced if something of it is stored. A client that
// opens very many others has nothing announced, least of all everything.
func TestNamingOfEmptySpaces(t *testing.T) {
	play(t, script{at: "c"}, func(t *testing.T, g *stage) {
		n := &g.server.naming
		g.server.o.Events = index.NewLog(1, index.LogOptions{})
		for i := range 2048 {
			n.add(key.SpaceID{1, byte(i), byte(i >> 8)})
		}
		if ids := n.take(); len(ids) > 0 {
			t.Errorf("%d empty spaces are announced", len(ids))
		}
		n.add(g.chain.Space)
		ids := n.take()
		if _, named := ids[g.chain.Space]; len(ids) != 1 || !named {
			t.Errorf("announced: %v; want the space of the chunk", ids)
		}
	})
}
