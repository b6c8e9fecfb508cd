package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// Rewrite is the text of a configuration file without the keys that left, its comments
// kept. taken are these keys, in the order of the text, each with its replacement. err is
// any other problem of the new text.
func Rewrite(path string) (fresh []byte, taken Errors, err error) {
	text, err := read(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read config: %w", err)
	}
	var errs Errors
	if _, err := Parse(path, text, Rules{}); errors.As(err, &errs) {
		taken = slices.DeleteFunc(errs, func(e *Error) bool { return !e.Left })
	}
	left := string(text)
	for _, e := range slices.Backward(taken) {
		left = withoutKey(left, e.Line, e.Column)
	}
	fresh = []byte(left)
	_, err = Parse("the new file", fresh, Rules{})
	return fresh, taken, err
}

// withoutKey takes out the key that begins at a line and column, with its value.
func withoutKey(text string, line, column int) string {
	list := lexer.Tokenize(text)
	at := slices.IndexFunc(list, func(t *token.Token) bool { return t.Position.Line == line && t.Position.Column == column })
	if at < 0 {
		return text // the caller finds the key there still
	}
	depth := 0
	for _, t := range list[:at] {
		depth += deeper(t)
	}
	if depth > 0 {
		return withoutInBraces(text, list, at)
	}
	last, next := line, at+1 // line of the value's last token, and the token behind it
	for ; next < len(list); next++ {
		p, kind := list[next].Position, list[next].Type
		if p.Line > line && depth == 0 && kind != token.CommentType && (p.Column < column || p.Column == column && kind != token.SequenceEntryType) {
			break
		}
		if depth += deeper(list[next]); kind != token.CommentType {
			last = p.Line
		}
	}
	return withoutLines(strings.SplitAfter(text, "\n"), line-1, last, column-1)
}

// deeper is 1 of a token that begins braces, -1 of one that ends them.
func deeper(t *token.Token) int {
	switch t.Type {
	case token.MappingStartType, token.SequenceStartType:
		return 1
	case token.MappingEndType, token.SequenceEndType:
		return -1
	}
	return 0
}

// withoutInBraces takes out a key of a mapping in braces, and one comma.
func withoutInBraces(text string, list token.Tokens, at int) string {
	end, depth := at, 0
	for ; depth > 0 || list[end].Type != token.CollectEntryType && deeper(list[end]) >= 0; end++ {
		depth += deeper(list[end])
	}
	from, to := offset(text, list[at]), offset(text, list[end])
	if list[end].Type == token.CollectEntryType {
		return text[:from] + strings.TrimLeft(text[to+1:], " ")
	}
	if before := strings.TrimRight(text[:from], " "); strings.HasSuffix(before, ",") {
		from = len(before) - 1
	}
	return text[:from] + text[to:]
}

// offset is where a token begins.
func offset(text string, t *token.Token) (at int) {
	lines := strings.SplitAfter(text, "\n")
	for _, l := range lines[:t.Position.Line-1] {
		at += len(l)
	}
	return at + len(string([]rune(lines[t.Position.Line-1])[:t.Position.Column-1]))
}

// withoutLines takes out the lines of a key and its value, and comments beside that.
func withoutLines(lines []string, line, end, column int) string {
	for i := end; i < len(lines) && (strings.TrimSpace(lines[i]) == "" || indent(lines[i]) > column); i++ {
		if strings.TrimSpace(lines[i]) != "" {
			end = i + 1
		}
	}
	head := string([]rune(lines[line])[:column])
	if strings.Contains(head, "-") && end < len(lines) && indent(lines[end]) == column { // the entry goes on
		lines[end] = head + lines[end][column:]
	}
	return strings.Join(slices.Delete(lines, line, end), "")
}

// indent is how many spaces a line begins with.
func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
