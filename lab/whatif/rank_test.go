package whatif

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/explain"
)

// TestRankBy: tenure is played with the weights that the tiers give chunks, and
// policies that know no costs are not touched by them.
func TestRankBy(t *testing.T) {
	rng, ids := rand.New(rand.NewPCG(24, 2)), []uint64(nil)
	for range 4000 {
		ids = append(ids, uint64(rng.IntN(200)))
	}
	var s *explain.Sample
	synctest.Test(t, func(t *testing.T) {
		s = record(t, explain.Tiers{DRAM: explain.Tier{Chunks: 600}}, 0, whole(ids, func(id uint64) int { return 1 + int(id%40) }))
	})
	hits := func(by bool) map[string]float64 {
		s.Tiers = explain.Tiers{DRAM: explain.Tier{Bytes: 1 << 20, Chunks: 600, Policy: "lru", ByCompute: by}, Disk: explain.Tier{Bytes: 1 << 20, Chunks: 900, Policy: "lru", ByCompute: by}, Write: "through"}
		p := newPlay(s, 500)
		p.report.Rows = slices.DeleteFunc(p.report.Rows, func(r Row) bool {
			return r.Factor != 1 || !slices.Contains([]string{"lru", "s3fifo", "tenure"}, r.Policy)
		})
		if err := p.all(t.Context(), func(*Row) {}); err != nil {
			t.Fatal(err)
		}
		out := make(map[string]float64)
		for _, r := range p.report.Rows {
			out[r.Tier+" "+r.Policy] = r.Compute
		}
		return out
	}
	tokens, compute := hits(false), hits(true)
	for _, name := range []string{"cpu tenure", "disk tenure"} {
		if tokens[name] == compute[name] {
			t.Errorf("%s: %.4f of the compute either way", name, tokens[name])
		}
	}
	if tokens["cpu lru"] != compute["cpu lru"] || tokens["disk s3fifo"] != compute["disk s3fifo"] {
		t.Errorf("by tokens %v, by compute %v", tokens, compute)
	}
}
