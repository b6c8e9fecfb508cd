package whatif

import (
	"strings"
	"testing"

	"github.com/kvstored/kvstored/internal/simulate"
)

// TestAdvice stages three situations, in each of which it is known what helps: a circle of
// prompts that does not fit into DRAM, one that fits a larger disk only, and prompts that
// never come again.
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
		now     Tiers
		prompts []uint64 // of 10 chunks each
		want    string   // begins so
	}{
		"DRAM is small":           {Tiers{DRAM: Tier{Bytes: 5 << 30, Chunks: 50, Policy: "lru"}, Write: simulate.Auto}, circle(10), "5.0 GiB more DRAM would have hit 90 % more"},
		"the disk is small":       {Tiers{DRAM: Tier{Bytes: 1 << 30, Chunks: 20, Policy: "lru"}, Disk: Tier{Bytes: 6 << 30, Chunks: 120, Policy: "lru"}, Write: simulate.Through}, circle(20), "6.0 GiB more disk would have hit 90 % more"},
		"nothing comes again":     {Tiers{DRAM: Tier{Bytes: 1 << 30, Chunks: 50, Policy: "lru"}, Disk: Tier{Bytes: 2 << 30, Chunks: 100, Policy: "lru"}, Write: simulate.Auto}, never, "no size up to 4 times the present one would have hit more"},
		"all is there already":    {Tiers{DRAM: Tier{Bytes: 1 << 30, Chunks: 200, Policy: "lru"}, Write: simulate.Auto}, circle(10), "no size up to 4 times the present one would have hit more"},
		"nothing was asked for":   {Tiers{DRAM: Tier{Bytes: 1 << 30, Chunks: 200, Policy: "lru"}, Write: simulate.Auto}, nil, ""},
		"another policy is right": {Tiers{DRAM: Tier{Bytes: 5 << 30, Chunks: 50, Policy: "lru"}, Write: simulate.Auto}, circle(30), ""},
	} {
		b := newBook(maxChunks)
		for _, id := range tt.prompts {
			offer(b, session(id, 0, 10), huge)
		}
		p := newPlay(b.copy(), tt.now, 30_000)
		p.all(t)
		p.report.At = p.report.Since.AddDate(1, 0, 0)
		got := p.report.Advice()
		if name == "another policy is right" {
			if !strings.Contains(got, ", cpu.policy ") {
				t.Errorf("%s: %q", name, got)
			}
			continue
		}
		if !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if got := new(Report).Advice(); got != "" {
		t.Errorf("without a report: %q", got)
	}
}
