package report

import (
	"fmt"
	"strconv"
	"time"

	"github.com/kvstored/kvstored/internal/chart"
	"github.com/kvstored/kvstored/internal/demo"
	"github.com/kvstored/kvstored/internal/human"
)

// talkWays are the ways in the order of the page's columns.
var talkWays = []struct {
	way   demo.Way
	color chart.Color
	name  string
}{
	{demo.Computed, chart.Gray, "computed"},
	{demo.FromDRAM, tierColors[0], "from DRAM"},
	{demo.FromDisk, tierColors[1], "from disk, after a restart"},
}

// Talk makes the page of a demo with an engine.
func Talk(r *demo.TalkResult) *Page {
	f := &r.FollowUp
	return &Page{
		Title: "kvstored demo --engine",
		Subtitle: fmt.Sprintf("A talk of %s, %s each, with a model of random weights on %s. Each prompt is answered three times in an empty context, and all answers are compared.",
			demo.People(r.Users), human.Plural(r.Turns, "turn"), r.Engine),
		OK: r.OK(),
		Headlines: []headline{
			{talkTime(f.Seconds[demo.Computed]), fmt.Sprintf("to the first token, computed (%s tokens)", human.Count(f.Tokens))},
			{talkTime(f.Seconds[demo.FromDRAM]), "with the prefix in DRAM"},
			{talkTime(f.Seconds[demo.FromDisk]), "with the prefix on disk, after a restart"},
			{fmt.Sprintf("%.1f ×", f.Sooner[demo.FromDRAM]), "sooner from DRAM"},
			{fmt.Sprintf("%.1f ×", f.Sooner[demo.FromDisk]), "sooner from disk"},
		},
		Charts: []figure{talkBars(r), talkSpread(r), talkTokens(r)},
		Facts: []fact{
			{"Answers", fmt.Sprintf("%s compared, %s different", human.Count(r.Compared), human.Count(r.Different))},
			{"Restarts of the daemon", human.Count(r.Restarts)},
			{"Model", fmt.Sprintf("random weights, %s", human.Bytes(r.ModelBytes))},
			{"Processor", human.Plural(r.Threads, "thread")},
			{"System prompt", human.Count(r.SystemTokens) + " tokens, shared"},
			{"Chunks", human.Count(r.ChunkTokens) + " tokens"},
			{"Loaded from disk", fmt.Sprintf("%s after restarts, %s for DRAM", human.Bytes(r.DiskBytes[demo.FromDisk]), human.Bytes(r.DiskBytes[demo.FromDRAM]))},
			{"Medians", "of all turns but the first"},
		},
	}
}

func talkTime(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	return human.Micros(seconds * 1e6)
}

// talkBars has a group of columns for each turn.
func talkBars(r *demo.TalkResult) figure {
	f := figure{Title: "Time to the first token, by turn", Note: "Medians of all people. In the first turn the system prompt alone is stored.", Wide: true}
	c := chart.Bars{Title: f.Title, X: "turn", Y: "milliseconds", Size: wholeWide}
	for i, w := range talkWays {
		part := chart.Part{Name: w.name, Color: w.color}
		part.Values = make([]float64, len(r.ByTurn)*(len(talkWays)+1)) // with a gap behind each group
		for turn, s := range r.ByTurn {
			part.Values[turn*(len(talkWays)+1)+i] = s.Seconds[w.way] * 1e3
		}
		c.Parts = append(c.Parts, part)
		f.Legend = append(f.Legend, legend{w.color, w.name})
	}
	for i := range r.ByTurn {
		c.Labels = append(c.Labels, "", strconv.Itoa(i+1), "", "")
	}
	c.Labels = c.Labels[:max(0, len(c.Labels)-1)]
	f.SVG = drawn(&c.Size, c.SVG)
	return f
}

// talkSpread is how many prompts had their first token how soon.
func talkSpread(r *demo.TalkResult) figure {
	f := figure{Title: "How soon the first token is there", Note: "Share of the prompts that waited no longer, all turns but the first."}
	c := chart.Lines{Title: f.Title, Y: chart.Axis{Title: "% of prompts", High: 100}, X: chart.Axis{Format: timeLabel}, Size: halfWide}
	for _, w := range talkWays {
		var set []time.Duration
		for _, p := range r.Prompts {
			if (p.Turn > 0 || r.Turns == 1) && p.Seconds[w.way] > 0 {
				set = append(set, time.Duration(p.Seconds[w.way]*float64(time.Second)))
			}
		}
		if len(set) > 0 {
			c.Lines = append(c.Lines, cdfLine(w.name, w.color, set))
			f.Legend = append(f.Legend, legend{w.color, w.name})
		}
	}
	if len(c.Lines) > 0 {
		f.SVG = drawn(&c.Size, c.SVG)
	}
	return f
}

// talkTokens is what of the prompts was restored.
func talkTokens(r *demo.TalkResult) figure {
	f := figure{Title: "Where the tokens of a prompt came from", Note: "Means, with the cache. Whole chunks are restored, and the rest is computed."}
	restored := chart.Part{Name: "restored", Color: tierColors[0]}
	computed := chart.Part{Name: "computed by the engine", Color: chart.Pale}
	c := chart.Bars{Title: f.Title, X: "turn", Y: "tokens", Size: halfWide}
	for i, s := range r.ByTurn {
		c.Labels = append(c.Labels, strconv.Itoa(i+1))
		restored.Values = append(restored.Values, s.Restored)
		computed.Values = append(computed.Values, s.Tokens-s.Restored)
	}
	c.Parts = []chart.Part{restored, computed}
	for _, p := range c.Parts {
		f.Legend = append(f.Legend, legend{p.Color, p.Name})
	}
	f.SVG = drawn(&c.Size, c.SVG)
	return f
}
