package server

import (
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// leaving is a store of claims, of which a connection leaves once something is pinned.
type leaving struct {
	*store.Leases
	leaves *reader
}

func (s leaving) Claim(space key.SpaceID, hs []key.Hash, claimed []bool) {
	s.Leases.Claim(space, hs, claimed)
	s.leaves.session.mu.Lock()
	s.leaves.session.mu.closed = true // close waits for the mutex of the claims
	s.leaves.session.mu.Unlock()
}

// A connection leaves while another of its user works for a job of its own. All that the job
// held and pinned is given back in the end, and the owner with it.
func TestConnectionLeavesItsJob(t *testing.T) {
	for name, end := range map[string]func(g *stage, leaves, stays *reader, j *job){
		"released by another": func(g *stage, leaves, stays *reader, j *job) {
			taken, err := stays.session.takeJob(j.id)
			g.must(err)
			leaves.session.close()
			if taken.end(); taken.session != leaves.session {
				g.t.Error("the job is not that of the other connection")
			}
		},
		"pinned by another that waits": func(g *stage, leaves, _ *reader, j *job) {
			claims := g.server.hints.claims
			g.server.hints.claims = hint.NewClaims(leaving{g.server.o.Store.Leases, leaves}, g.server.settings().Retain)
			if n, err := addPin(leaves.session, j.prompt.chain(), 0, 2, "x", time.Hour); err == nil || n.Chunks != 0 {
				g.t.Error("a connection that has left pins something")
			}
			leaves.session.mu.closed, g.server.hints.claims = false, claims
			leaves.session.close()
			if list, _ := g.server.hints.claims.List(true, 9); len(list) != 0 {
				g.t.Errorf("the pins %v stay", list)
			}
		},
		"held by another that waits": func(g *stage, leaves, _ *reader, j *job) {
			leaves.session.close()
			next := g.server.o.Store.Leases.NewOwner() // what the one that has left was known by
			if n, err := addPin(leaves.session, j.prompt.chain(), 0, 2, "x", time.Hour); err == nil || n.Chunks != 0 {
				g.t.Errorf("a connection that has left holds %d chunks", n.Chunks)
			}
			g.server.o.Store.Leases.CloseOwner(next)
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, script{at: "cc"}, func(_ *testing.T, g *stage) {
				leaves, stays := g.connect(g.server), g.reader
				g.reader = leaves
				j := g.prefetch(&wire.PrefetchRequest{Flags: wire.PrefetchShared | wire.PrefetchPin, LookupID: "x"})
				g.reader = stays
				end(g, leaves, stays, j)
				g.must(leaves.session.conn.Close())
				if pins, _ := g.server.hints.claims.List(true, 9); len(pins) != 0 {
					g.t.Errorf("the pins %v stay", pins)
				}
			})
		})
	}
}
