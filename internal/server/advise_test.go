package server

import (
	"context"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// Advice in virtual time: a load from disk takes 10 ms, one from the remote tier
// 30 ms.
func TestAdvice(t *testing.T) {
	const all = "ccddddrrrr" // 16 tokens a chunk
	for _, tc := range []struct {
		name        string
		measure     bool
		prefillRate uint32
		load        uint32
	}{
		{"not measured yet: load", false, 1, 10},
		{"a slow engine loads all", true, 100, 10},
		{"a fast engine computes", true, 1_000_000, 2},
		{"between: the last chunks take longer to load", true, 2_000, 8},
	} {
		t.Run(tc.name, func(t *testing.T) {
			play(t, script{at: all, o: Prefetch{WindowBytes: 4 * scriptSize}}, func(t *testing.T, g *stage) {
				if tc.measure {
					g.done(g.prefetch(&wire.PrefetchRequest{}))
					j, err := g.session.job(g.server.ids.Load())
					g.must(err)
					g.send(wire.OpRelease, &wire.IDRequest{ID: j.id})
					g.cool(2, len(all))
				}
				start := time.Now()
				g.replies = g.replies[:0]
				j := g.prefetch(&wire.PrefetchRequest{Shared: wire.Shared{PrefillRate: tc.prefillRate}})
				var reply wire.PrefetchReply
				g.must(reply.Decode(g.first))
				a := reply.Advice
				if a == nil {
					t.Fatal("no advice")
				}
				if a.Load.Chunks != tc.load || a.Load.Tokens != uint64(tc.load)*scriptTokens {
					t.Errorf("load %+v; want %d chunks", a.Load, tc.load)
				}
				if reply.Match.Total.Chunks != uint32(len(all)) {
					t.Errorf("matched %+v", reply.Match)
				}
				g.done(j)
				if s := j.state(0); s.Code != fine || s.Ready.Chunks != a.Load.Chunks {
					t.Errorf("the job has %+v; want what was advised", s)
				}
				g.send(wire.OpRelease, &wire.IDRequest{ID: j.id})
				missed := uint64(0)
				for _, m := range g.server.Stats().Missed.Missed {
					if m.Reason == "advised" && m.Tier == "none" {
						missed = m.Tokens
					}
				}
				if want := uint64(len(all)-int(tc.load)) * scriptTokens; missed != want {
					t.Errorf("%d tokens are missing as advised, want %d", missed, want)
				}
				took := time.Since(start) + time.Duration(uint64(len(all))*scriptTokens-a.Load.Tokens)*time.Second/time.Duration(tc.prefillRate)
				if said := time.Duration(a.Micros) * time.Microsecond; tc.measure && (said < took*2/3 || said > took*3/2) {
					t.Errorf("all is there after %v; advised %v", took, said)
				}
			})
		})
	}
}

// TestAdviceAfterADelete: leased chunks are never advised against, even if the
// index has lost them meanwhile.
func TestAdviceAfterADelete(t *testing.T) {
	play(t, script{at: "cccdd"}, func(t *testing.T, g *stage) {
		st := g.server.o.Store
		p := g.server.plainPrompt([]key.Chain{*g.chain}, tier.All)
		g.must(p.find(g.session.ctx))
		j := newJob(g.session, &p)
		_, err := st.Remover.Delete(context.Background(), tiertest.Keys(g.chain, 1, 2))
		g.must(err)
		if a := j.advise(t.Context(), 1_000_000); a == nil || a.Load.Chunks < 3 {
			t.Errorf("3 chunks are leased; advised to load %+v", a)
		}
		if j.limit < 3 {
			t.Errorf("the job ends at chunk %d", j.limit)
		}
		j.end()
	})
}
