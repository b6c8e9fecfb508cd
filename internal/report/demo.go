package report

import (
	"fmt"
	"strconv"

	"github.com/kvstored/kvstored/internal/demo"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/replay"
)

// Demo makes the page of a demo.
func Demo(r *demo.Result, s *replay.Series) *Page {
	byTurn := s.ByTurn(r.Turns)
	labels := make([]string, r.Turns)
	for i := range labels {
		labels[i] = strconv.Itoa(i + 1)
	}
	turns := shareBars{
		title: "Where the tokens of each turn came from", shares: byTurn, labels: labels,
		x: "turn", y: "thousand tokens", unit: 1e3, size: wholeWide,
	}
	before, after := s.Around(demo.RestartWindow)
	restart := shareBars{
		title:  "Before and after the restart",
		shares: []replay.Share{before, after},
		labels: []string{human.Plural(before.Prompts, "prompt") + " before", human.Plural(after.Prompts, "prompt") + " after"},
		y:      "% of tokens", relative: true, size: halfWide,
	}
	return &Page{
		Title: "kvstored demo",
		Subtitle: fmt.Sprintf("%d people chat with one assistant, %d turns each. One engine asks for every prompt, checks every byte it gets, and stores what is missing.",
			r.Users, r.Turns),
		OK: r.Total.OK(),
		Headlines: []headline{
			{human.Percent(float64(r.Total.TotalHitTokens), float64(r.Total.TotalPromptTokens)), "of prompt tokens not computed again"},
			{human.Micros(r.Total.LookupP50), "to know what is stored (median)"},
			{human.Micros(r.Total.ReadyP50), "until a prefix is ready (median)"},
			{human.Seconds(r.Saved.PrefillSeconds), fmt.Sprintf("of prefill saved, at %s tokens/s", human.Count(r.Saved.PrefillTokensPerSecond))},
			{human.Bytes(r.Restart.BytesBack), "came back from disk after a restart"},
		},
		Charts: []figure{
			turns.figure("All people together. Prompts grow with each turn, and so does what need not be computed."),
			readyChart(s, halfWide),
			restart.figure("The daemon was stopped and started in the middle. DRAM was empty then; the disk was not."),
		},
		Facts: demoFacts(r),
	}
}

func demoFacts(r *demo.Result) []fact {
	return append(resultFacts(&r.Total),
		fact{"Restart", fmt.Sprintf("%s to stop, %s to start", human.Seconds(r.Restart.StopSeconds), human.Seconds(r.Restart.StartSeconds))},
		fact{"Setting", fmt.Sprintf("%s of DRAM, %d tokens a chunk, %s of KV each", human.Bytes(r.DRAMBytes), r.ChunkTokens, human.Bytes(r.PayloadBytes))},
		fact{"Assumption", fmt.Sprintf("the engine computes %s prompt tokens per second", human.Count(r.Saved.PrefillTokensPerSecond))},
	)
}
