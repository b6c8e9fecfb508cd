package whatif

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/explain"
)

// TestAdvice stages situations in each of which it is known what helps: a circle of prompts
// that does not fit into DRAM, one that fits a larger disk only, and prompts that never come
// again.
func TestAdvice(t *testing.T) {
	circle := func(prompts int) (list []uint64) {
		for range 10 {
			for id := range uint64(prompts) {
				list = append(list, id)
			}
		}
		return list
	}
	never := make([]uint64, 500)
	for i := range never {
		never[i] = uint64(i)
	}
	for name, tt := range map[string]struct {
		now     explain.Tiers
		prompts []uint64 // of 10 chunks each
		want    string   // begins so
	}{
		"DRAM is small":           {explain.Tiers{DRAM: explain.Tier{Bytes: 5 << 30, Chunks: 50, Policy: "lru"}, Write: "auto"}, circle(10), "5.0 GiB more DRAM would have hit 90 % more"},
		"the disk is small":       {explain.Tiers{DRAM: explain.Tier{Bytes: 1 << 30, Chunks: 20, Policy: "lru"}, Disk: explain.Tier{Bytes: 6 << 30, Chunks: 120, Policy: "lru"}, Write: "through"}, circle(20), "6.0 GiB more disk would have hit 90 % more"},
		"nothing comes again":     {explain.Tiers{DRAM: explain.Tier{Bytes: 1 << 30, Chunks: 50, Policy: "lru"}, Disk: explain.Tier{Bytes: 2 << 30, Chunks: 100, Policy: "lru"}, Write: "auto"}, never, "no size up to 4 times the present one would have hit more"},
		"all is there already":    {explain.Tiers{DRAM: explain.Tier{Bytes: 1 << 30, Chunks: 200, Policy: "lru"}, Write: "auto"}, circle(10), "no size up to 4 times the present one would have hit more"},
		"nothing was asked for":   {explain.Tiers{DRAM: explain.Tier{Bytes: 1 << 30, Chunks: 200, Policy: "lru"}, Write: "auto"}, nil, ""},
		"another policy is right": {explain.Tiers{DRAM: explain.Tier{Bytes: 5 << 30, Chunks: 50, Policy: "lru"}, Write: "auto"}, circle(30), "no size up to"},
	} {
		var r *Report
		synctest.Test(t, func(t *testing.T) {
			r = playAll(t, record(t, tt.now, 0, whole(tt.prompts, func(uint64) int { return 10 })), 30_000)
		})
		r.Measured, r.MeasuredTokens = r.now().Hit+0.04, 1
		got, err := r.Advice()
		if err != nil || !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tt.want)
		}
		if name == "another policy is right" && !strings.Contains(got, ", cpu.policy ") {
			t.Errorf("%s: %q", name, got)
		}
		r.Measured += 0.02
		if got, err := r.Advice(); tt.want != "" && (!errors.Is(err, ErrOff) || got != "") {
			t.Errorf("%s, 6 points off: %q, %v", name, got, err)
		}
	}
	if got, err := new(Report).Advice(); got != "" || err != nil {
		t.Errorf("without a sample: %q, %v", got, err)
	}
}
