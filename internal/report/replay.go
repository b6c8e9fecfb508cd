package report

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/replay"
)

// readyTable is the distribution of the time from request to ready prefix, by
// the farthest tier that a part of the prefix came from.
func readyTable(o *replay.Options, r *replay.Result) reportTable {
	t := reportTable{
		Title: "Ready after the request, by tier", Note: "The farthest tier that a part of the prefix came from.",
		Head: []string{"", "requests", "p50", "p90", "p99", "longest"},
	}
	if o.Deadline > 0 {
		t.Note += fmt.Sprintf(" %s answered after the deadline of %v.", human.Plural(r.LateRequests, "request"), o.Deadline)
	}
	us := func(v float64) string { return strings.Replace(human.Micros(v), " us", " µs", 1) }
	for i, name := range append([]string{"none"}, replay.TierNames[:]...) {
		title := "nothing was found"
		if i > 0 {
			title = replay.TierTitles[i-1]
		}
		if d := r.ReadyBy[name]; d.Requests > 0 {
			t.Rows = append(t.Rows, cells(title, human.Count(d.Requests), us(d.P50), us(d.P90), us(d.P99), us(d.Max)))
		}
	}
	return t
}

// replayParts is how many bars show a trace.
const replayParts = 40

// Replay makes the page of a replay against a daemon.
func Replay(o *replay.Options, r *replay.Result, s *replay.Series) *Page {
	parts := s.InOrder(replayParts)
	labels := make([]string, len(parts))
	for i := range labels {
		if i%4 == 0 {
			labels[i] = strconv.Itoa(100 * i / len(parts))
		}
	}
	bars := shareBars{
		title: "Where the tokens came from", shares: parts, labels: labels,
		x: "% of the trace", y: "% of tokens", relative: true, size: wholeWide,
	}
	return &Page{
		Title:    "Replay of " + filepath.Base(o.Name),
		Subtitle: fmt.Sprintf("%s in blocks of %d tokens, payloads of %s, %s.", human.Plural(r.Requests, "request"), o.BlockTokens, human.Bytes(o.PayloadBytes), human.Plural(o.Concurrency, "client")),
		OK:       r.OK(),
		Headlines: []headline{
			{human.Percent(float64(r.TotalHitTokens), float64(r.TotalPromptTokens)), "of prompt tokens not computed again"},
			{human.Micros(r.LookupP50), "to know what is stored (median)"},
			{human.Micros(r.ReadyP50), "until a prefix is ready (median)"},
			{human.Rate(r.GBPerSecond), "stored, read and verified"},
		},
		Charts: []figure{
			bars.figure(fmt.Sprintf("In the order of the trace, about %s a bar.", human.Plural(s.Len()/len(parts), "request"))),
			readyChart(s, wholeWide),
		},
		Tables: []reportTable{readyTable(o, r)},
		Facts:  append(resultFacts(r), fact{"Clients", human.Count(o.Concurrency)}),
	}
}

// resultFacts are the numbers that every run has.
func resultFacts(r *replay.Result) []fact {
	facts := []fact{{"Prompts", fmt.Sprintf("%s, %s tokens", human.Count(r.Requests), human.Count(r.TotalPromptTokens))}}
	for i, name := range replay.TierNames {
		if n := r.HitTokens[name]; n > 0 {
			facts = append(facts, fact{"From " + replay.TierTitles[i], fmt.Sprintf("%s tokens, %s", human.Count(n), human.Percent(float64(n), float64(r.TotalPromptTokens)))})
		}
	}
	return append(facts,
		fact{"Verified", fmt.Sprintf("%s, %s wrong", human.Bytes(r.BytesRead), human.Count(r.Mismatches))},
		fact{"Stored", fmt.Sprintf("%s in %s", human.Bytes(r.BytesWritten), human.Plural(r.StoredBlocks, "chunk"))},
		fact{"Lookup", fmt.Sprintf("p50 %s, p99 %s", human.Micros(r.LookupP50), human.Micros(r.LookupP99))},
		fact{"Prefix ready", fmt.Sprintf("p50 %s, p99 %s", human.Micros(r.ReadyP50), human.Micros(r.ReadyP99))},
		fact{"Moved", human.Rate(r.GBPerSecond)},
	)
}
