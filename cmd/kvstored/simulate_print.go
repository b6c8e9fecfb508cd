package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/simulate"
)

// rowColumns are those of a simulation's rows, as scripts know them.
var rowColumns = []string{
	"policy", "capacity_blocks", "requests", "total_prompt_tokens", "total_hit_tokens",
	"overall_hit_rate", "final_cache_blocks", "block_accesses", "block_hits", "block_misses",
}

// printRows prints the same columns for scripts and for people.
func (f *replayFlags) printRows(w io.Writer, rows []simulate.Row) error {
	if f.asJSON {
		return printJSON(w, rows)
	}
	if file, ok := w.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		f.rowsForPeople(w, rows, os.Getenv("NO_COLOR") == "")
	} else {
		f.rowsForScripts(w, rows)
	}
	if f.report != "" {
		fmt.Fprintf(w, "\nreport: %s\n", f.report)
	}
	return nil
}

// rowsForScripts has all digits of every number, and nothing between them.
func (f *replayFlags) rowsForScripts(w io.Writer, rows []simulate.Row) {
	var t table
	t.row(f.withSize(rowColumns, "capacity")...)
	for _, r := range rows {
		t.row(f.withSize(rowCells(r, strconv.FormatInt, strconv.FormatFloat(r.OverallHitRate, 'g', -1, 64)), f.rowSize(r))...)
	}
	t.print(w, "")
}

// rowsForPeople has a block of rows for each capacity, as the table of the
// report has a row. With styles the best of each stands out, and the bounds do
// not.
func (f *replayFlags) rowsForPeople(w io.Writer, rows []simulate.Row, styled bool) {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b simulate.Row) int { return cmp.Compare(a.CapacityBlocks, b.CapacityBlocks) })
	var t table
	var upper, lower []string
	for _, name := range f.withSize(rowColumns, "capacity") {
		above, below := headLines(name)
		upper, lower = append(upper, above), append(lower, below)
	}
	t.row(upper...)
	t.row(lower...)
	digits := func(n int64, _ int) string { return human.Count(n) }
	for _, r := range rows {
		rate := fmt.Sprintf("%.2f %%", 100*r.OverallHitRate)
		t.row(f.withSize(rowCells(r, digits, rate), f.rowSize(r))...)
	}
	var text strings.Builder
	t.print(&text, "")
	for i, line := range strings.Split(strings.TrimRight(text.String(), "\n"), "\n") {
		at := i - 2
		if at == 0 || at > 0 && rows[at].CapacityBlocks != rows[at-1].CapacityBlocks {
			fmt.Fprintln(w)
		}
		if style := rowStyle(rows, at); styled && style != "" {
			line = style + line + plainText
		}
		fmt.Fprintln(w, line)
	}
}

// What every terminal knows.
const (
	plainText = "\x1b[0m"
	boldText  = "\x1b[1m"
	faintText = "\x1b[2m"
)

// rowStyle is that of a row among all; the head's lines are before the first.
func rowStyle(rows []simulate.Row, at int) string {
	switch {
	case at < 0 || simulate.IsBound(rows[at].Policy):
		return faintText
	case slices.ContainsFunc(rows, func(r simulate.Row) bool {
		return r.CapacityBlocks == rows[at].CapacityBlocks && r.TotalHitTokens > rows[at].TotalHitTokens && !simulate.IsBound(r.Policy)
	}):
		return ""
	}
	return boldText
}

// headLines breaks the name of a column in two, before its last word.
func headLines(name string) (above, below string) {
	at := strings.LastIndexByte(name, '_') + 1
	return name[:at], name[at:]
}

// rowCells are the cells of a row, but for how large the capacity is in bytes.
func rowCells(r simulate.Row, number func(n int64, base int) string, rate string) []string {
	of := func(n int) string { return number(int64(n), 10) }
	return []string{
		r.Policy, of(r.CapacityBlocks), of(r.Requests), number(r.TotalPromptTokens, 10), number(r.TotalHitTokens, 10),
		rate, of(r.FinalCacheBlocks), of(r.BlockAccesses), of(r.BlockHits), of(r.BlockMisses),
	}
}

// withSize adds a cell where bytes are asked for.
func (f *replayFlags) withSize(cells []string, size string) []string {
	if f.simulate.blockBytes == 0 {
		return cells
	}
	return append(slices.Clone(cells), size)
}

func (f *replayFlags) rowSize(r simulate.Row) string {
	return human.Bytes(int64(r.CapacityBlocks) * f.simulate.blockBytes)
}
