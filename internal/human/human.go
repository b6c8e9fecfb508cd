package human

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// Count is n with separators between thousands.
func Count[N int | int64 | uint32 | uint64 | float64](n N) string { return humanize.Comma(int64(n)) }

// Bytes is a size in binary units; a negative one is zero.
func Bytes[N int | int64 | uint64 | float64](n N) string { return humanize.IBytes(uint64(max(n, 0))) }

// Rate is GB/s in decimal units, as memory and disks are rated.
func Rate(gb float64) string { return humanize.Bytes(uint64(gb*1e9)) + "/s" }

// Percent is the share of part in whole; "-" of nothing.
func Percent(part, whole float64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*part/whole)
}

// Micros is a duration given in microseconds, with about three digits.
func Micros(us float64) string {
	switch d := time.Duration(us * float64(time.Microsecond)); {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.1f us", us)
	case d < 10*time.Millisecond:
		return Count(us) + " us"
	case d < 10*time.Second:
		return Count(us/1e3) + " ms"
	default:
		return fmt.Sprintf("%.0f s", us/1e6)
	}
}

// Duration is a length of time, in the unit that it is long in.
func Duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	default:
		return d.Round(time.Second).String()
	}
}

// Seconds is Duration of a number of seconds.
func Seconds(s float64) string { return Duration(time.Duration(s * float64(time.Second))) }

// Plural is n and the noun that fits it.
func Plural[N int | int64 | uint32 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Count(n) + " " + noun + "s"
}

// Table prints rows with aligned columns: the first to the left, the others to
// the right. A row of one cell belongs to the one above it, and to no column.
type Table struct{ rows [][]string }

// Row adds one.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// Print prints all, each line behind indent.
func (t *Table) Print(w io.Writer, indent string) {
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

// Columns is the width of texts for people, where that can be kept.
const Columns = 80

// List prints names, each with a text that is broken at spaces.
type List struct{ rows [][2]string }

// Row adds a name and its text.
func (l *List) Row(name, format string, args ...any) {
	l.rows = append(l.rows, [2]string{name, fmt.Sprintf(format, args...)})
}

// Print prints all, each line behind indent.
func (l *List) Print(w io.Writer, indent string) {
	width := 0
	for _, r := range l.rows {
		width = max(width, utf8.RuneCountInString(r[0]))
	}
	for _, r := range l.rows {
		name := r[0]
		for _, line := range Wrapped(r[1], Columns-len(indent)-width-2) {
			fmt.Fprintf(w, "%s%-*s  %s\n", indent, width, name, line)
			name = ""
		}
	}
}

// Wrapped is a text in lines of at most so many letters, broken at spaces, but for those before
// a percent sign.
func Wrapped(text string, width int) (out []string) {
	line := ""
	for _, word := range strings.Fields(strings.ReplaceAll(text, " %", "\x00%")) {
		word = strings.ReplaceAll(word, "\x00", " ")
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			out, line = append(out, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(out, line)
}
