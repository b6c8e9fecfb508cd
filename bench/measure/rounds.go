package measure

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Rounds are the times of contenders that take turns: for each row a time a round, which
// is a median of calls or of few of them. The first contender is what the others are
// compared with. All times have the same unit.
type Rounds struct {
	Contenders  []string `json:"-"`
	Differences bool     `json:"-"` // of times are shown, instead of ratios
	Rows        []*Row   `json:"rows"`
}

// Row is what contenders took for one thing, by contender, in the order of the rounds.
type Row struct {
	What  string               `json:"what"`
	Times map[string][]float64 `json:"times"`
}

// Row is the row of that name, which is added where there is none.
func (r *Rounds) Row(what string) *Row {
	for _, row := range r.Rows {
		if row.What == what {
			return row
		}
	}
	row := &Row{What: what, Times: make(map[string][]float64)}
	r.Rows = append(r.Rows, row)
	return row
}

// Ratios are a contender's times to another's in the rounds that both have, sorted.
func (r *Row) Ratios(to, name string) []float64 {
	return r.compared(to, name, func(mine, other float64) float64 { return other / mine })
}

func (r *Row) compared(to, name string, by func(mine, other float64) float64) (out []float64) {
	mine, other := r.Times[to], r.Times[name]
	for i := range min(len(mine), len(other)) {
		out = append(out, by(mine[i], other[i]))
	}
	slices.Sort(out)
	return out
}

// Markdown is a table of medians. Beside the first contender's stand the least and the most
// of its rounds, beside another's the median, the least and the most of the ratios to the
// first in the same round, or the median and the quartiles of the differences. Contenders
// without a time have no column.
func (r *Rounds) Markdown() string {
	shown := slices.DeleteFunc(slices.Clone(r.Contenders), func(name string) bool {
		return !slices.ContainsFunc(r.Rows, func(row *Row) bool { return len(row.Times[name]) > 0 })
	})
	lines := [][]string{append([]string{""}, shown...), nil}
	for _, row := range r.Rows {
		line := []string{row.What}
		for _, name := range shown {
			line = append(line, row.text(r.Contenders[0], name, r.Differences))
		}
		lines = append(lines, line)
	}
	return aligned(lines)
}

func (r *Row) text(first, name string, differences bool) string {
	times := r.Times[name]
	if len(times) == 0 {
		return "-"
	}
	if name == first {
		return fmt.Sprintf("%s (%s-%s)", Digits(Median(times)), Digits(slices.Min(times)), Digits(slices.Max(times)))
	}
	if differences && len(times) != len(r.Times[first]) { // of other rounds
		return Digits(Median(times))
	}
	if differences {
		d := r.compared(first, name, func(mine, other float64) float64 { return other - mine })
		return fmt.Sprintf("%s (%+.1f, %+.1f to %+.1f)", Digits(Median(times)), Median(d), Quantile(d, .25), Quantile(d, .75))
	}
	ratios := r.Ratios(first, name)
	if len(ratios) == 0 {
		return Digits(Median(times))
	}
	return fmt.Sprintf("%s (%.2fx %.2f-%.2f)", Digits(Median(times)), Median(ratios), ratios[0], ratios[len(ratios)-1])
}

// Digits writes a time with as many digits as say something.
func Digits(of float64) string {
	switch {
	case of < 10:
		return fmt.Sprintf("%.2f", of)
	case of < 100:
		return fmt.Sprintf("%.1f", of)
	}
	return fmt.Sprintf("%.0f", of)
}

// aligned writes lines as a table of Markdown. The first is its head, the second the rule
// below that.
func aligned(lines [][]string) string {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, text := range line {
			widths[i] = max(widths[i], 3, utf8.RuneCountInString(text))
		}
	}
	for _, n := range widths {
		lines[1] = append(lines[1], strings.Repeat("-", n))
	}
	var b strings.Builder
	for _, line := range lines {
		for i, text := range line {
			fmt.Fprintf(&b, "| %-*s ", widths[i], text)
		}
		b.WriteString("|\n")
	}
	return b.String()
}
