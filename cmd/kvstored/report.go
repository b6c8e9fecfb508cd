package main

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"image/color"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kvstored/kvstored/internal/replay"
)

// report is a page that opens offline.
type report struct {
	Title, Subtitle string
	Headlines       []headline
	Charts          []chart
	Tables          []reportTable
	Facts           []fact
	Simulated       bool // no bytes were moved that could be wrong
	OK              bool // no byte was wrong
	Footer          string
}

type headline struct{ Value, Label string }

type fact struct{ Name, Value string }

type reportTable struct {
	Title, Note string
	Head        []string
	Rows        [][]cell // the first cell names the row
}

type cell struct {
	Text  string
	Class string // best or bound, for those that are
}

func cells(texts ...string) (row []cell) {
	for _, text := range texts {
		row = append(row, cell{Text: text})
	}
	return row
}

type chart struct {
	Title, Note string
	Legend      []legend
	SVG         template.HTML
	Wide        bool
}

type legend struct {
	Color template.CSS
	Label string
}

//go:embed report.html
var reportHTML string

var reportPage = template.Must(template.New("report").Parse(reportHTML))

// canReport says before the work that its report, if any, cannot be written.
// It leaves what is there as it is.
func canReport(path string) error {
	if path == "" {
		return nil
	}
	_, was := os.Stat(path)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	f.Close()
	if errors.Is(was, fs.ErrNotExist) {
		return os.Remove(path)
	}
	return nil
}

// writeReport writes the page that build makes.
func writeReport(path string, build func() (*report, error)) (err error) {
	r, err := build()
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for i := range r.Headlines {
		r.Headlines[i].Value = strings.Replace(r.Headlines[i].Value, " us", " µs", 1)
	}
	for i := range r.Facts {
		r.Facts[i].Value = strings.ReplaceAll(r.Facts[i].Value, " us", " µs")
	}
	r.Footer = fmt.Sprintf("kvstored %s, %s", version(), time.Now().Format("2 January 2006, 15:04"))
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := errors.Join(reportPage.Execute(f, r), f.Close()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// tierLegend explains the colors of the tiers that were used.
func tierLegend(shares []share) (out []legend) {
	for i, c := range tierColors {
		used := i < 2 || i == len(tierTitles)
		for _, s := range shares {
			used = used || s.tokens[i] > 0
		}
		switch {
		case i == len(tierTitles):
			out = append(out, legend{css(c), "computed by the engine"})
		case used:
			out = append(out, legend{css(c), "from " + tierTitles[i]})
		}
	}
	return out
}

// readyChart is how long prefixes took to be ready, by where they were.
func readyChart(s *series, size chartSize) (chart, error) {
	warm, cold := s.readyTimes()
	colors := []color.NRGBA{tierColors[0], tierColors[1]}
	drawing, err := cdf([][]time.Duration{warm, cold}, colors, size)
	c := chart{
		Title: "How fast a prefix is ready", SVG: drawing, Wide: size == wholeWide,
		Note: "From the question to the last byte in DRAM; share of the prompts that waited no longer.",
	}
	if len(warm) > 0 {
		c.Legend = append(c.Legend, legend{css(colors[0]), fmt.Sprintf("all in DRAM (%s)", plural(len(warm), "prompt"))})
	}
	if len(cold) > 0 {
		c.Legend = append(c.Legend, legend{css(colors[1]), fmt.Sprintf("some from disk (%s)", plural(len(cold), "prompt"))})
	}
	return c, err
}

func demoReport(r *demoResult, s *series) func() (*report, error) {
	return func() (*report, error) {
		byTurn := s.byTurn(r.Turns)
		labels := make([]string, r.Turns)
		for i := range labels {
			labels[i] = strconv.Itoa(i + 1)
		}
		turns, err := bars{
			shares: byTurn, labels: labels, x: "turn", y: "thousand tokens", unit: 1e3, width: 46, size: wholeWide,
		}.draw()
		if err != nil {
			return nil, err
		}
		ready, err := readyChart(s, halfWide)
		if err != nil {
			return nil, err
		}
		before, after := s.around(restartWindow)
		restart, err := bars{
			shares: []share{before, after},
			labels: []string{plural(before.n, "prompt") + " before", plural(after.n, "prompt") + " after"},
			y:      "% of tokens", relative: true, width: 84, size: halfWide,
		}.draw()
		if err != nil {
			return nil, err
		}
		return &report{
			Title: "kvstored demo",
			Subtitle: fmt.Sprintf("%d people chat with one assistant, %d turns each. One engine asks for every prompt, checks every byte it gets, and stores what is missing.",
				r.Users, r.Turns),
			OK: r.Total.OK(),
			Headlines: []headline{
				{percent(float64(r.Total.TotalHitTokens), float64(r.Total.TotalPromptTokens)), "of prompt tokens not computed again"},
				{micros(r.Total.LookupP50), "to know what is stored (median)"},
				{micros(r.Total.ReadyP50), "until a prefix is ready (median)"},
				{seconds(r.Saved.PrefillSeconds), fmt.Sprintf("of prefill saved, at %s tokens/s", comma(r.Saved.PrefillTokensPerSecond))},
				{size(r.Restart.BytesBack), "came back from disk after a restart"},
			},
			Charts: []chart{
				{Title: "Where the tokens of each turn came from", SVG: turns, Legend: tierLegend(byTurn), Wide: true,
					Note: "All people together. Prompts grow with each turn, and so does what need not be computed."},
				ready,
				{Title: "Before and after the restart", SVG: restart, Legend: tierLegend([]share{before, after}),
					Note: "The daemon was stopped and started in the middle. DRAM was empty then; the disk was not."},
			},
			Facts: demoFacts(r),
		}, nil
	}
}

func demoFacts(r *demoResult) []fact {
	return append(resultFacts(&r.Total),
		fact{"Restart", fmt.Sprintf("%s to stop, %s to start", seconds(r.Restart.StopSeconds), seconds(r.Restart.StartSeconds))},
		fact{"Setting", fmt.Sprintf("%s of DRAM, %d tokens a chunk, %s of KV each", size(r.DRAMBytes), r.ChunkTokens, size(r.PayloadBytes))},
		fact{"Assumption", fmt.Sprintf("the engine computes %s prompt tokens per second", comma(r.Saved.PrefillTokensPerSecond))},
	)
}

// resultFacts are the numbers that every run has.
func resultFacts(r *replay.Result) []fact {
	facts := []fact{{"Prompts", fmt.Sprintf("%s, %s tokens", comma(r.Requests), comma(r.TotalPromptTokens))}}
	for i, name := range replay.TierNames {
		if n := r.HitTokens[name]; n > 0 {
			facts = append(facts, fact{"From " + tierTitles[i], fmt.Sprintf("%s tokens, %s", comma(n), percent(float64(n), float64(r.TotalPromptTokens)))})
		}
	}
	return append(facts,
		fact{"Verified", fmt.Sprintf("%s, %s wrong", size(r.BytesRead), comma(r.Mismatches))},
		fact{"Stored", fmt.Sprintf("%s in %s", size(r.BytesWritten), plural(r.StoredBlocks, "chunk"))},
		fact{"Lookup", fmt.Sprintf("p50 %s, p99 %s", micros(r.LookupP50), micros(r.LookupP99))},
		fact{"Prefix ready", fmt.Sprintf("p50 %s, p99 %s", micros(r.ReadyP50), micros(r.ReadyP99))},
		fact{"Moved", rate(r.GBPerSecond)},
	)
}

// readyTable is the distribution of the time from request to ready prefix, by
// the farthest tier that a part of the prefix came from.
func readyTable(o *replay.Options, r *replay.Result) reportTable {
	t := reportTable{
		Title: "Ready after the request, by tier", Note: "The farthest tier that a part of the prefix came from.",
		Head: []string{"", "requests", "p50", "p90", "p99", "longest"},
	}
	if o.Deadline > 0 {
		t.Note += fmt.Sprintf(" %s answered after the deadline of %v.", plural(r.LateRequests, "request"), o.Deadline)
	}
	us := func(v float64) string { return strings.Replace(micros(v), " us", " µs", 1) }
	for i, name := range append([]string{"none"}, replay.TierNames[:]...) {
		title := "nothing was found"
		if i > 0 {
			title = tierTitles[i-1]
		}
		if d := r.ReadyBy[name]; d.Requests > 0 {
			t.Rows = append(t.Rows, cells(title, comma(d.Requests), us(d.P50), us(d.P90), us(d.P99), us(d.Max)))
		}
	}
	return t
}

// replayParts is how many bars show a trace.
const replayParts = 40

func replayReport(o *replay.Options, r *replay.Result, s *series) func() (*report, error) {
	return func() (*report, error) {
		parts := s.inOrder(replayParts)
		labels := make([]string, len(parts))
		for i := range labels {
			if i%4 == 0 {
				labels[i] = strconv.Itoa(100 * i / len(parts))
			}
		}
		drawing, err := bars{
			shares: parts, labels: labels, x: "% of the trace", y: "% of tokens", relative: true, width: 16, size: wholeWide,
		}.draw()
		if err != nil {
			return nil, err
		}
		ready, err := readyChart(s, wholeWide)
		if err != nil {
			return nil, err
		}
		return &report{
			Title:    "Replay of " + filepath.Base(o.Name),
			Subtitle: fmt.Sprintf("%s in blocks of %d tokens, payloads of %s, %s.", plural(r.Requests, "request"), o.BlockTokens, size(o.PayloadBytes), plural(o.Concurrency, "client")),
			OK:       r.OK(),
			Headlines: []headline{
				{percent(float64(r.TotalHitTokens), float64(r.TotalPromptTokens)), "of prompt tokens not computed again"},
				{micros(r.LookupP50), "to know what is stored (median)"},
				{micros(r.ReadyP50), "until a prefix is ready (median)"},
				{rate(r.GBPerSecond), "stored, read and verified"},
			},
			Charts: []chart{
				{Title: "Where the tokens came from", SVG: drawing, Legend: tierLegend(parts), Wide: true, Note: fmt.Sprintf("In the order of the trace, about %s a bar.", plural(len(s.points)/len(parts), "request"))},
				ready,
			},
			Tables: []reportTable{readyTable(o, r)},
			Facts:  append(resultFacts(r), fact{"Clients", comma(o.Concurrency)}),
		}, nil
	}
}
