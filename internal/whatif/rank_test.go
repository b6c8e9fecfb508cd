package whatif

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/simulate"
)

// TestRankBy: tenure is played with the weights that the tiers give chunks, and
// policies that know no costs are not touched by them.
func TestRankBy(t *testing.T) {
	b, rng := newBook(maxChunks), rand.New(rand.NewPCG(24, 2))
	for range 4000 {
		id := uint64(rng.IntN(200))
		offer(b, session(id, 0, 1+int(id%40)), huge)
	}
	hits := func(by bool) map[string]float64 {
		now := Tiers{DRAM: Tier{Bytes: 1 << 20, Chunks: 600, Policy: "lru", ByCompute: by}, Disk: Tier{Bytes: 1 << 20, Chunks: 900, Policy: "lru", ByCompute: by}, Write: simulate.Through}
		p := newPlay(b.copy(), now, 500)
		p.report.Rows = slices.DeleteFunc(p.report.Rows, func(r Row) bool {
			return r.Factor != 1 || !slices.Contains([]string{"lru", "s3fifo", "tenure"}, r.Policy)
		})
		p.all(t)
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
