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
		for i := range 2 * maxNaming {
			n.add(key.SpaceID{1, byte(i), byte(i >> 8)})
		}
		if ids, all := n.take(); len(ids) > 0 || all {
			t.Errorf("%d empty spaces are announced, all spaces: %t", len(ids), all)
		}
		n.add(g.chain.Space)
		if ids, all := n.take(); len(ids) != 1 || ids[0] != g.chain.Space || all {
			t.Errorf("announced: %v, all: %t; want the space of the chunk", ids, all)
		}
	})
}
