package server

import (
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

// A connection leaves while another of its user works for a job of its own. All that the job
// held and pinned is given back in the end, and the owner with it.
func TestConnectionLeavesItsJob(t *testing.T) {
	for name, end := range map[string]func(g *stage, leaves, stays *reader, j *job){
		"released by another": func(g *stage, leaves, stays *reader, j *job) {
			taken, err := stays.takeJob(j.id)
			g.must(err)
			leaves.close()
			if taken.end(); taken.session != leaves.session {
				g.t.Error("the job is not that of the other connection")
			}
		},
		"pinned by another that waits": func(g *stage, leaves, _ *reader, j *job) {
			refs := make([]tier.Ref, 2)
			n, err := g.server.o.Stack.Hold(leaves.owner, ledger.Pin, j.chain, 0, len(refs), refs)
			g.must(err)
			leaves.close()
			if err := g.server.pins.add(leaves.session, j.chain.Space, "x", refs[:n], time.Hour); err == nil {
				g.t.Error("a connection that has left pins something")
			}
		},
		"held by another that waits": func(g *stage, leaves, _ *reader, j *job) {
			leaves.close()
			next := g.server.o.Stack.NewOwner() // what the one that has left was known by
			if n, err := addPin(leaves.session, j.chain, 0, 2, "x", time.Hour); err == nil || n.Chunks != 0 {
				g.t.Errorf("a connection that has left holds %d chunks", n.Chunks)
			}
			g.server.o.Stack.CloseOwner(next)
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, script{at: "cc"}, func(_ *testing.T, g *stage) {
				leaves, stays := g.connect(g.server), g.reader
				g.reader = leaves
				j := g.prefetch(&wire.PrefetchRequest{Flags: wire.PrefetchShared | wire.PrefetchPin, LookupID: "x"})
				g.reader = stays
				end(g, leaves, stays, j)
				g.must(leaves.conn.Close())
				if pins, _ := g.server.pins.list(9); len(pins) != 0 {
					g.t.Errorf("the pins %v stay", pins)
				}
			})
		})
	}
}
