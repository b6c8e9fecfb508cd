package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one problem with one key.
type Error struct {
	Source string // file, or environment variable; "" = a default
	Line   int    // from 1; 0 where Source is not a file or the file does not mention the key
	Column int    // from 1, in characters
	Path   string // such as cpu.capacity; "" where the problem is not one key's
	Text   string // what is wrong, and what to do
	Left   bool   // the key was one, and Rewrite takes it out
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Source != "" {
		b.WriteString(e.Source)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
		}
		b.WriteString(": ")
	}
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	b.WriteString(e.Text)
	return b.String()
}

// Errors is every problem found, those of the file first and in its order.
// errors.As finds both it and its first *Error.
type Errors []*Error

// Error has one line per problem.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// sorted returns es as an error: nil if there are none, so that no caller
// gets a non-nil error around an empty list.
func (es Errors) sorted() error {
	if len(es) == 0 {
		return nil
	}
	slices.SortStableFunc(es, func(a, b *Error) int {
		if (a.Line == 0) != (b.Line == 0) {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return es
}
