package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

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

// printable is a text of a client's, quoted where a terminal might obey it.
func printable(s string) string {
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

// columns is the width of texts for people, where that can be kept.
const columns = 80

// list prints names, each with a text that is broken at spaces.
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
		name := r[0]
		for _, line := range wrapped(r[1], columns-len(indent)-width-2) {
			fmt.Fprintf(w, "%s%-*s  %s\n", indent, width, name, line)
			name = ""
		}
	}
}
