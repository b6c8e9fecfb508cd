package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/lab/simulate"
	"github.com/kvstored/kvstored/policy"
)

// printRows prints a table for people, or all of each row as JSON.
func (f *replayFlags) printRows(w io.Writer, trace *simulate.Trace, rows []simulate.Row) error {
	if f.asJSON {
		return printJSON(w, rows)
	}
	f.printTrace(w, trace)
	f.rowTable(w, rows, styled(w))
	return nil
}

// printTrace names the trace and its sizes.
func (f *replayFlags) printTrace(w io.Writer, t *simulate.Trace) {
	fmt.Fprintf(w, "%s: %s with %s tokens, %s accesses to %s of %d tokens, over %s\n\n", filepath.Base(f.trace),
		human.Plural(t.Requests(), "request"), human.Count(t.Tokens()), human.Count(t.Accesses()), human.Plural(t.Distinct(), "block"), f.blockTokens, human.Duration(t.Lasts()))
}

// styled reports whether a writer is a terminal with styles.
func styled(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && os.Getenv("NO_COLOR") == ""
}

// rowTable has a block of rows for each capacity. With styles the best of each stands out, and the bounds do not.
func (f *replayFlags) rowTable(w io.Writer, rows []simulate.Row, styled bool) {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b simulate.Row) int { return cmp.Compare(a.CapacityBlocks, b.CapacityBlocks) })
	var t human.Table
	t.Row(f.withSize([]string{"policy", "blocks", "tokens hit", "compute", "hit tokens", "block hits", "block misses", "in the end"}, "size")...)
	for _, r := range rows {
		t.Row(f.withSize([]string{
			r.Policy, human.Count(r.CapacityBlocks), percent(r.OverallHitRate), percent(r.OverallComputeRate), human.Count(r.TotalHitTokens),
			human.Count(r.BlockHits), human.Count(r.BlockMisses), human.Count(r.FinalCacheBlocks),
		}, f.size(r.CapacityBlocks))...)
	}
	var text strings.Builder
	t.Print(&text, "")
	for i, line := range strings.Split(strings.TrimRight(text.String(), "\n"), "\n") {
		at := i - 1
		if at == 0 || at > 0 && rows[at].CapacityBlocks != rows[at-1].CapacityBlocks {
			fmt.Fprintln(w)
		}
		if style := rowStyle(rows, at); styled && style != "" {
			line = style + line + plainText
		}
		fmt.Fprintln(w, line)
	}
	apart := slices.DeleteFunc(simulate.Policies(), func(name string) bool {
		return slices.Contains(policy.All(), name) || !slices.ContainsFunc(rows, func(r simulate.Row) bool { return r.Policy == name })
	})
	if len(apart) > 0 {
		fmt.Fprintln(w, "\nnot in the daemon:", strings.Join(apart, ", "))
	}
}

// percent is a rate for people.
func percent(rate float64) string { return fmt.Sprintf("%.2f %%", 100*rate) }

// What every terminal knows.
const (
	plainText = "\x1b[0m"
	boldText  = "\x1b[1m"
	faintText = "\x1b[2m"
)

// rowStyle is that of a row among all; the head's line is before the first.
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

// withSize adds a cell where bytes are asked for.
func (f *replayFlags) withSize(cells []string, size string) []string {
	if f.simulate.blockBytes == 0 {
		return cells
	}
	return append(cells, size)
}

// size is so many blocks in bytes.
func (f *replayFlags) size(blocks int) string {
	return human.Bytes(int64(blocks) * f.simulate.blockBytes)
}

// tierTable has a row for each pair of tiers.
func (f *replayFlags) tierTable(rows []simulate.TierRow) *human.Table {
	t := new(human.Table)
	t.Row(f.withSize([]string{"DRAM", "blocks", "disk", "blocks", "write", "tokens hit", "in DRAM", "compute", "written"}, "bytes written")...)
	for _, r := range rows {
		t.Row(f.withSize([]string{
			r.Policy, human.Count(r.CapacityBlocks), r.DiskPolicy, human.Count(r.DiskBlocks), string(r.Write),
			percent(r.OverallHitRate), percent(float64(r.DRAMHitTokens) / float64(r.TotalPromptTokens)), percent(r.OverallComputeRate), human.Count(r.WrittenBlocks),
		}, human.Bytes(r.WrittenBytes))...)
	}
	return t
}
