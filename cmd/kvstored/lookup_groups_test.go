package main

import (
	"slices"
	"strings"
	"testing"
)

// A lookup with groups says which lengths all of them can use, and what is where.
func TestLookupGroups(t *testing.T) {
	serveHere(t)
	must(t, kv(1, 6), prompt("put", 1, 6)...)
	state := func(command string, chunks int) []string {
		return append(prompt(command, 1, chunks), "--group", "mamba")
	}
	must(t, kv(1, 4), state("put", 4)...)
	groups := append(prompt("lookup", 1, 6), "--groups", "mamba=state,swa=window:2")
	got := read[lookupResult](t, groups...)
	if got.MatchedTokens != 0 || got.Grouped.RunTokens != 6 || len(got.Grouped.Lengths) != 0 || !got.Grouped.Groups[1].Lacks || !got.Grouped.Groups[2].Lacks {
		t.Errorf("without a window: %+v, %+v", got, got.Grouped)
	}
	must(t, kv(1, 3), append(prompt("put", 1, 3), "--group", "swa")...)
	got = read[lookupResult](t, groups...)
	if got.MatchedTokens != 3 || !slices.Equal(got.Grouped.Lengths, []uint32{3, 2, 1}) || got.Grouped.Groups[0].Chunks != 3 || got.Grouped.Groups[1].Chunks != 1 || got.Grouped.Groups[2].Tiers["cpu"] != 2 {
		t.Errorf("%+v, %+v", got, got.Grouped)
	}
	out := must(t, "", groups...)
	for _, want := range []string{"window 2", "lacks what 6 tokens need", "usable at 3, 2, 1 tokens"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for wrong, want := range map[string]string{
		"mamba":             "write NAME=full",
		"=state":            "write NAME=full",
		"swa=window":        "have tokens behind a colon",
		"swa=window:0":      "use 1 to",
		"mamba=state:5":     "others have none",
		"m=state,m=state":   "named twice",
		"swa=sliding:1":     "write NAME=full",
		"swa=window:many":   "use 1 to",
		"swa=window:1:2":    "use 1 to",
		"a=local:2,b=full:": "others have none",
	} {
		fails(t, exitUsage, want, append(prompt("lookup", 1, 2), "--groups", wrong)...)
	}
}
