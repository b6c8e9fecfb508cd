package whatif

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/explain"
)

// TestModels: of many models, each with a system prompt that all its sessions begin with, of
// which some come only when the sample has been halved, the estimate is within five points
// of what all prompts make.
func TestModels(t *testing.T) {
	const models, each = 24, 12
	rng := rand.New(rand.NewPCG(29, 1))
	var prompts []asked
	turns := make(map[[2]int]int)
	for step := range 3000 {
		model := rng.IntN(min(models, 4+step/100))
		session := rng.IntN(each)
		turn := min(turns[[2]int{model, session}], 20)
		turns[[2]int{model, session}]++
		p := asked{space: byte(model + 1), chunk: 256}
		for i := range 20 + 4*turn {
			id := uint64(model*1000)<<20 + uint64(i) + 1
			if i >= 10 {
				id += uint64(session+1) << 20
			}
			p.ids = append(p.ids, id)
		}
		p.tokens = 256 * len(p.ids)
		prompts = append(prompts, p)
	}
	now := explain.Tiers{DRAM: explain.Tier{Bytes: 1 << 30, Chunks: 6000, Policy: "lru"}, Write: "auto"}
	var part, all *explain.Sample
	synctest.Test(t, func(t *testing.T) { part = record(t, now, 1<<13, prompts) })
	synctest.Test(t, func(t *testing.T) { all = record(t, now, 0, prompts) })
	if part.Shift == 0 || all.Shift != 0 {
		t.Fatalf("shifts %d and %d", part.Shift, all.Shift)
	}
	// What was measured counts the same prompts as the sample.
	begun := slices.IndexFunc(part.Prompts, func(p explain.Prompt) bool { return !p.Warmup })
	for i := range all.Prompts {
		all.Prompts[i].Warmup = all.Prompts[i].Millis < part.Prompts[begun].Millis
	}
	estimated, exact := playAll(t, part, 30_000), playAll(t, all, 30_000)
	t.Logf("one in %d sessions, %d prompts of %d, %d heads", 1<<part.Shift, estimated.Requests, exact.Requests, part.Heads)
	for i := range exact.Rows {
		e, x := &estimated.Rows[i], &exact.Rows[i]
		if x.Factor == 1 {
			t.Logf("%s: %.3f, exact %.3f", x.Policy, e.Hit, x.Hit)
		}
		if x.Current && math.Abs(e.Hit-x.Hit) > mostOff {
			t.Errorf("%s at its size: %.3f, exact %.3f", x.Policy, e.Hit, x.Hit)
		}
	}
}
