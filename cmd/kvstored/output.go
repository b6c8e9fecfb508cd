package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
)

// jsonFlag gives a command the flag for output that machines read.
func jsonFlag(cmd *cobra.Command, on *bool) {
	cmd.Flags().BoolVar(on, "json", false, "print one JSON object")
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// harmless is a text of a client's, quoted where a terminal might obey it.
func harmless(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// table prints rows with aligned columns: the first to the left, the others to
// the right. A row of one cell belongs to the one above it, and to no column.
type table struct{ rows [][]string }

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w io.Writer, indent string) {
	var widths []int
	for _, r := range t.rows {
		if len(r) == 1 {
			continue
		}
		for i, c := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range t.rows {
		if len(r) == 1 {
			fmt.Fprintln(w, indent+r[0])
			continue
		}
		line := indent
		for i, c := range r {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if i == 0 {
				line += c + pad
			} else {
				line += "  " + pad + c
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// list prints names and what there is to say about them.
type list struct{ rows [][2]string }

func (l *list) row(name, format string, args ...any) {
	l.rows = append(l.rows, [2]string{name, fmt.Sprintf(format, args...)})
}

func (l *list) print(w io.Writer, indent string) {
	width := 0
	for _, r := range l.rows {
		width = max(width, utf8.RuneCountInString(r[0]))
	}
	for _, r := range l.rows {
		fmt.Fprintf(w, "%s%-*s  %s\n", indent, width, r[0], r[1])
	}
}

// comma is n with separators between thousands.
func comma[N int | int64 | uint32 | uint64 | float64](n N) string { return humanize.Comma(int64(n)) }

// size is a number of bytes in binary units.
func size[N int | int64 | uint64 | float64](n N) string { return humanize.IBytes(uint64(max(n, 0))) }

// rate is GB/s in decimal units, as memory and disks are rated.
func rate(gb float64) string { return humanize.Bytes(uint64(gb*1e9)) + "/s" }

func percent(part, whole float64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*part/whole)
}

// micros is a duration given in microseconds with about three digits.
func micros(us float64) string {
	switch d := time.Duration(us * float64(time.Microsecond)); {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.1f us", us)
	case d < 10*time.Millisecond:
		return comma(us) + " us"
	case d < 10*time.Second:
		return comma(us/1e3) + " ms"
	default:
		return fmt.Sprintf("%.0f s", us/1e6)
	}
}

// span is a length of time for people.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	default:
		return d.Round(time.Second).String()
	}
}

// plural is n and the noun that fits it.
func plural[N int | int64 | uint32 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return comma(n) + " " + noun + "s"
}
