package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/internal/wire/wiretest"
)

//go:generate go test -run TestDocument -update .

var update = flag.Bool("update", false, "write the blocks of docs/protocol.md and docs/protocol-more.md anew")

// block is a piece of the pages that is printed: its name, and what it says.
var block = regexp.MustCompile("(?ms)^```kv ([a-z_ ]+)\n.*?^```$")

// TestDocument: the blocks of the pages say what the schema says, and all of it is in them.
func TestDocument(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	s, err := wiretest.Read(filepath.Join(root, "testdata", "wire", "schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	printed := make(map[string]bool)
	for _, name := range []string{"protocol.md", "protocol-more.md"} {
		path := filepath.Join(root, "docs", name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		now := block.ReplaceAllStringFunc(string(text), func(old string) string {
			name := block.FindStringSubmatch(old)[1]
			said, ok := documentBlock(s, name)
			if !ok {
				t.Errorf("%s: the schema has nothing for the block %q", path, name)
			}
			printed[name] = true
			return "```kv " + name + "\n" + said + "\n```"
		})
		if *update {
			if err := os.WriteFile(path, []byte(now), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if now != string(text) {
			t.Errorf("docs/%s is not what the schema says: go generate ./internal/wire/gen", name)
		}
	}
	wanted := []string{"header", "types", "options", "enums", "limits", "error", "codes"}
	for op := range s.Operations {
		wanted = append(wanted, "op "+op)
	}
	for _, name := range wanted {
		if !printed[name] {
			t.Errorf("no page has the block %q", name)
		}
	}
}

// documentBlock is what a block says, by its name.
func documentBlock(s *wiretest.Schema, name string) (said string, ok bool) {
	what, name, _ := strings.Cut(name, " ")
	switch what {
	case "header":
		return joined(s.Header), true
	case "push":
		push, ok := s.Pushes[name]
		return joined(s.Fields(push.Body)), ok
	case "op":
		op, ok := s.Operations[name]
		return documentOp(s, name, op), ok
	case "error":
		return joined(s.Types["error"]), true
	case "types":
		return lines(sorted(s.Types), func(name string) string { return joined(s.Types[name]) }), true
	case "options":
		return lines(sorted(s.Options), func(name string) string { return documentOptions(s, s.Options[name]) }), true
	case "enums":
		return lines(sorted(s.Enums), func(name string) string { return documentEnum(s.Enums[name]) }), true
	case "limits":
		return lines(sorted(s.Limits), func(name string) string {
			return fmt.Sprintf("%11s  %s", commas(s.Limits[name]), s.Notes["bounds"][name])
		}), true
	case "codes":
		return documentCodes(s), true
	}
	return "", false
}

func documentOp(s *wiretest.Schema, name string, op wiretest.Operation) string {
	head := fmt.Sprintf("%s = %d", name, op.Op)
	if op.Right != "" {
		head += ", right " + op.Right
	}
	if op.Waits != "" {
		head += ", waits " + op.Waits + " (without a deadline)"
	}
	said := func(body any) string {
		if name, ok := body.(string); ok {
			return name
		}
		return joined(s.Fields(body))
	}
	return fmt.Sprintf("%s\nrequest: %s\nreply:   %s", head, said(op.Request), said(op.Reply))
}

// documentOptions is a list of options in the order of their tags.
func documentOptions(s *wiretest.Schema, tags map[string][2]any) string {
	number := func(name string) uint16 { return uint16(tags[name][0].(float64)) }
	names := slices.SortedFunc(maps.Keys(tags), func(a, b string) int { return int(number(a)) - int(number(b)) })
	for i, name := range names {
		format := "%d:%s:%s"
		if number(name)&s.Critical != 0 {
			format = "%#x:%s:%s"
		}
		names[i] = fmt.Sprintf(format, number(name), name, tags[name][1])
	}
	return strings.Join(names, ", ")
}

func documentEnum(numbers map[string]uint32) string {
	names := slices.SortedFunc(maps.Keys(numbers), func(a, b string) int { return int(numbers[a]) - int(numbers[b]) })
	for i, name := range names {
		names[i] = fmt.Sprintf("%d:%s", numbers[name], name)
	}
	return strings.Join(names, ", ")
}

func documentCodes(s *wiretest.Schema) string {
	var out []string
	for _, c := range s.Codes {
		name := c[1].(string)
		note := strings.ReplaceAll(s.Notes["codes"][name], "\n", " ")
		out = append(out, fmt.Sprintf("%2v  %-18s  %-9s  %s", c[0], name, c[2], note))
	}
	return strings.Join(out, "\n")
}

// joined is fields in a line, each as name:type.
func joined(fields []string) string {
	said := make([]string, len(fields))
	for i, field := range fields {
		said[i] = strings.Replace(field, " ", ":", 1)
	}
	return strings.Join(said, ", ")
}

// lines has a line for each name, with what is said of it in a column.
func lines(names []string, say func(name string) string) string {
	width := 0
	for _, name := range names {
		width = max(width, len(name))
	}
	for i, name := range names {
		names[i] = strings.TrimRight(fmt.Sprintf("%-*s  %s", width, name, say(name)), " ")
	}
	return strings.Join(names, "\n")
}

func commas(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
