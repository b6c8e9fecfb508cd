package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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
	lines := strings.SplitAfter(string(text), "\n")
	for _, e := range slices.Backward(taken) {
		lines = withoutKey(lines, e.Line-1, e.Column-1)
	}
	fresh = []byte(strings.Join(lines, ""))
	_, err = Parse("the new file", fresh, Rules{})
	return fresh, taken, err
}

// withoutKey takes out the key that begins at a column of a line, with its value.
func withoutKey(lines []string, line, column int) []string {
	head := string([]rune(lines[line])[:column])
	if strings.Trim(head, " -") != "" { // it is within braces
		lines[line] = head + afterValue(strings.TrimPrefix(lines[line], head))
		if text := strings.TrimRight(head, " "); strings.HasSuffix(text, ",") && strings.HasPrefix(lines[line][len(head):], "}") {
			lines[line] = strings.TrimSuffix(text, ",") + lines[line][len(head):]
		}
		return lines
	}
	end := line + 1 // of its value, and of comments beside that
	for i := end; i < len(lines) && (strings.TrimSpace(lines[i]) == "" || indent(lines[i]) > column); i++ {
		if strings.TrimSpace(lines[i]) != "" {
			end = i + 1
		}
	}
	if strings.Contains(head, "-") && end < len(lines) && indent(lines[end]) == column { // the entry goes on
		lines[end] = head + lines[end][column:]
	}
	return slices.Delete(lines, line, end)
}

// indent is how many spaces a line begins with.
func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// afterValue is what follows a key and its value within braces, and the comma behind them.
func afterValue(text string) string {
	depth, quote := 0, byte(0)
	for i := range len(text) {
		switch c := text[i]; {
		case quote == c:
			quote = 0
		case quote != 0:
		case strings.IndexByte(`"'`, c) >= 0:
			quote = c
		case strings.IndexByte("{[", c) >= 0:
			depth++
		case depth > 0:
			depth -= strings.Count("}]", string(c))
		case c == ',':
			return strings.TrimLeft(text[i+1:], " ")
		case strings.IndexByte("}\n", c) >= 0:
			return text[i:]
		}
	}
	return ""
}
