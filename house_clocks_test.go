package kvstored_test

import (
	"go/ast"
	"os"
	"slices"
	"strings"
	"testing"
)

// clocksPath lists the test files of the root that ask the machine's clock or start a
// process. It may only shrink: a test that waits belongs into a synctest bubble, one that
// needs a process into e2e.
const clocksPath = "testdata/house/clocks.txt"

// clocked are the calls that need a bubble. A process needs e2e.
var clocked = map[string][]string{
	"context": {"WithTimeout", "WithDeadline", "WithTimeoutCause"},
	"time":    {"Now", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Since", "Until"},
	"exec":    {"Command", "CommandContext"},
	"os":      {"StartProcess"},
}

// TestClocks: only files that are listed ask the machine's clock, or start a process,
// where a test of theirs is in no bubble.
func TestClocks(t *testing.T) {
	text, err := os.ReadFile(clocksPath)
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Fields(string(text))
	if !slices.IsSorted(listed) {
		t.Errorf("%s is not sorted", clocksPath)
	}
	var found []string
	for _, s := range sources(t, layered...) {
		if s.tests && asksClock(s.ast) {
			found = append(found, s.path)
		}
	}
	slices.Sort(found)
	for _, path := range found {
		if !slices.Contains(listed, path) {
			t.Errorf("%s asks the machine's clock or starts a process, and not each of its tests calls synctest.Test: put them into a bubble, or move them to e2e", path)
		}
	}
	for _, path := range listed {
		if !slices.Contains(found, path) {
			t.Errorf("%s needs no place in %s: strike it", path, clocksPath)
		}
	}
}

// TestDurations: no product code asks for nanoseconds of the date. Two of them differ by
// more, or less, than the time between where the clock of the machine is set: a duration
// is between two of time.Time, which have a monotonic reading.
func TestDurations(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok && call.Sel.Name == "UnixNano" && !s.tests {
				t.Errorf("%s calls UnixNano: keep a time.Time", s.path)
			}
			return true
		})
	}
}

// asksClock reports whether a file has one of the calls and a test without a bubble, or no
// test at all.
func asksClock(f *ast.File) bool {
	asks := false
	ast.Inspect(f, func(n ast.Node) bool {
		if pkg, name, ok := qualified(n); ok && slices.Contains(clocked[pkg], name) {
			asks = true
		}
		return !asks
	})
	if !asks {
		return false
	}
	tests, bubbles := 0, 0
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || fn.Body == nil || !strings.HasPrefix(fn.Name.Name, "Test") || fn.Name.Name == "TestMain" {
			continue
		}
		tests++
		in := false
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			pkg, name, ok := qualified(n)
			in = in || ok && pkg == "synctest" && name == "Test"
			return !in
		})
		if in {
			bubbles++
		}
	}
	return tests == 0 || bubbles < tests
}

// qualified is the package and the name of an expression like time.Now.
func qualified(n ast.Node) (pkg, name string, ok bool) {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok {
		return "", "", false
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", "", false
	}
	return id.Name, sel.Sel.Name, true
}
