package kvstored_test

import (
	"flag"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/internal/wire/wiretest"
)

// The limits of the house. A function or interface over its limit stands in a
// list below with the number it has now. A number there may only shrink: a
// higher one fails, and so does a lower one until the list has it. A name below
// the limit is struck from the list. A name that moves to another package takes
// its line along.
//
//	go test -run TestHouse -v .           all numbers
//	go test -run TestHouse -v . -vague P  the vague comment lines below folder P
const (
	maxInterface  = 7  // methods of an interface
	maxFunction   = 70 // lines
	maxComplexity = 15 // of a function
	maxMethods    = 59 // of a type; see methodSets
)

// wideInterfaces may have more than maxInterface methods.
var wideInterfaces = map[string]int{}

// longFunctions may have more than maxFunction lines.
var longFunctions = map[string]int{}

// complexFunctions may be more complex than maxComplexity.
var complexFunctions = map[string]int{
	"client.exchangeHello": 16,
}

// wideTypes may have more than maxMethods.
var wideTypes = map[string]int{}

// undocumented packages have no doc.go.
var undocumented = []string{}

// maxVague is the share of comment lines whose actor is no noun of the code.
// The aim is 0.5.
const maxVague = 0.5 // percent

// mostLines is how many lines the module's product code has. It only falls: a change that
// adds lines takes them elsewhere, or says in its commit for which user they are.
const mostLines = 76_331

// slackLines may go before mostLines follows, so that not each change meets it.
const slackLines = 300

// leastComments is the share of comment lines in it.
const leastComments = 12.0 // percent

// mostKeys is how many keys the daemon's configuration has. One more names, in its commit, the
// operators who need another value than ours, and why no measuring finds it.
const mostKeys = 65

// mostPackages is how many packages the product has, and mostNames how many names lie in internal.
const mostPackages, mostNames = 34, 24

// mostCommands counts a group as one, mostCalls are administrators', mostOperations the wire's.
const mostCommands, mostCalls, mostOperations = 16, 14, 22

var vagueBelow = flag.String("vague", "", "print the vague comment lines of the files below this folder (. is all)")

func TestHouse(t *testing.T) {
	all := sources(t, modules...)
	root := slices.DeleteFunc(slices.Clone(all), func(s source) bool {
		return slices.ContainsFunc(modules, func(m string) bool { return under(s.pkg, m) })
	})
	t.Run("interfaces", func(t *testing.T) { checkInterfaces(t, all) })
	t.Run("functions", func(t *testing.T) { checkFunctions(t, all) })
	t.Run("methods", func(t *testing.T) { checkNumbers(t, "wideTypes", "methods", maxMethods, wideTypes, methodSets(root)) })
	t.Run("doc.go", func(t *testing.T) { checkDocs(t, all) })
	t.Run("lines", func(t *testing.T) { checkLines(t, root) })
	t.Run("packages", func(t *testing.T) { checkPackages(t, root) })
	t.Run("keys", checkKeys)
	t.Run("surfaces", checkSurfaces)
	t.Run("vague", func(t *testing.T) { printVague(t, all) })
	t.Run("numbers", func(t *testing.T) { printNumbers(t, root) })
}

func checkInterfaces(t *testing.T, all []source) {
	checkNumbers(t, "wideInterfaces", "methods", maxInterface, wideInterfaces, interfaces(all))
}

// Tables of tests may be as long as they like, and generated functions.
func checkFunctions(t *testing.T, all []source) {
	lines, complexities := make(map[string]int), make(map[string]int)
	for _, s := range all {
		if s.tests || ast.IsGenerated(s.ast) {
			continue
		}
		for _, f := range functions(s) { // of one name there is one for each system
			lines[f.name] = max(lines[f.name], f.lines)
			complexities[f.name] = max(complexities[f.name], f.complexity)
		}
	}
	checkNumbers(t, "longFunctions", "lines", maxFunction, longFunctions, lines)
	checkNumbers(t, "complexFunctions", "branches", maxComplexity, complexFunctions, complexities)
}

// checkNumbers holds numbers to a limit and a list of exceptions.
func checkNumbers(t *testing.T, list, unit string, limit int, listed, numbers map[string]int) {
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		n, was := numbers[name], listed[name]
		switch {
		case n > limit && was == 0:
			t.Errorf("%s has %d %s; at most %d", name, n, unit, limit)
		case n > limit && n > was:
			t.Errorf("%s grows: %d %s, was %d", name, n, unit, was)
		case n > limit && n < was:
			t.Errorf("%s shrinks: lower it in %s to %d", name, list, n)
		case n <= limit && was != 0:
			t.Errorf("%s is small enough with %d %s: strike it from %s", name, n, unit, list)
		}
	}
	checkNames(t, list, listed, numbers)
}

// checkNames finds entries of a list for names that are gone.
func checkNames[V, W any](t *testing.T, list string, listed map[string]V, real map[string]W) {
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if _, there := real[name]; !there {
			t.Errorf("%s names %s, which is not there: strike it, or write its new name", list, name)
		}
	}
}

func checkDocs(t *testing.T, all []source) {
	has := make(map[string]bool) // packages with code, and whether there is a doc.go
	for _, s := range all {
		if !s.tests {
			has[s.pkg] = has[s.pkg] || path.Base(s.path) == "doc.go" && s.ast.Doc != nil
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(has)) {
		switch listed := slices.Contains(undocumented, pkg); {
		case !has[pkg] && !listed:
			t.Errorf("%s has no doc.go that says what the package owns, what it never does, its locks and its buffers", pkg)
		case has[pkg] && listed:
			t.Errorf("%s has a doc.go: strike it from undocumented", pkg)
		}
	}
	for _, pkg := range undocumented {
		if _, there := has[pkg]; !there {
			t.Errorf("undocumented names %s, which is not there", pkg)
		}
	}
}

// checkLines holds the lines of the product. Tests, generated files and packages that serve
// tests only do not count; what generates files does.
func checkLines(t *testing.T, all []source) {
	lines, remarks := 0, 0
	for _, s := range all {
		if s.tests || ast.IsGenerated(s.ast) || slices.Contains(forTests, s.pkg) && s.pkg != "internal/wire/gen" {
			continue
		}
		lines += s.lines
		remarks += len(comments(s))
	}
	t.Logf("%d lines, %.1f %% of them comments", lines, percent(remarks, lines))
	switch {
	case lines > mostLines:
		t.Errorf("the product has %d lines, %d more than mostLines", lines, lines-mostLines)
	case lines < mostLines-slackLines:
		t.Errorf("the product has %d lines only: set mostLines to that", lines)
	}
	if share := percent(remarks, lines); share < leastComments {
		t.Errorf("%.1f %% of the lines are comments, at least %.0f", share, leastComments)
	}
}

// checkPackages counts the packages of the product, and the names in internal.
func checkPackages(t *testing.T, all []source) {
	packages, names := map[string]bool{}, map[string]bool{}
	for _, s := range all {
		if below, ok := strings.CutPrefix(s.pkg, "internal/"); ok {
			name, _, _ := strings.Cut(below, "/")
			names[name] = true
		}
		if !s.tests && s.pkg != "" && s.pkg != "clients/python" && !under(s.pkg, "examples") && !slices.Contains(forTests, s.pkg) {
			packages[s.pkg] = true
		}
	}
	t.Logf("%d packages, %d names in internal", len(packages), len(names))
	if len(packages) > mostPackages || len(names) > mostNames {
		t.Errorf("at most %d packages and %d names", mostPackages, mostNames)
	}
}

// checkKeys counts the rows of the page that package config makes, one a key.
func checkKeys(t *testing.T) {
	keys := strings.Count(page(t, "docs/reference/configuration.md"), "\n| `")
	if t.Logf("%d keys", keys); keys > mostKeys {
		t.Errorf("%d keys, at most %d", keys, mostKeys)
	}
}

// checkSurfaces counts what users and clients can call, on the pages that tests keep to the
// code, and in the schema that it is made from.
func checkSurfaces(t *testing.T) {
	names := func(path, row string) int {
		found := map[string]bool{}
		for _, m := range regexp.MustCompile(row).FindAllStringSubmatch(page(t, path), -1) {
			found[m[1]] = true
		}
		return len(found)
	}
	schema, err := wiretest.Read("testdata/wire/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []struct {
		what    string
		n, most int
	}{
		{"commands", names("docs/reference/commands.md", "(?m)^\\| `([a-z]+)[a-z ]*` \\| .* \\| .* \\|$"), mostCommands},
		{"administrators' calls", names("docs/reference/admin-api.md", "(?m)^\\| `([A-Z]+ /v1/[a-z]+)`"), mostCalls},
		{"operations", len(schema.Operations), mostOperations},
	} {
		if t.Logf("%d %s", s.n, s.what); s.n == 0 || s.n > s.most {
			t.Errorf("%d %s, at most %d", s.n, s.what, s.most)
		}
	}
}

func printVague(t *testing.T, all []source) {
	if *vagueBelow == "" {
		t.Skip("asked for with -vague FOLDER")
	}
	for _, s := range all {
		if *vagueBelow != "." && !under(s.pkg, *vagueBelow) {
			continue
		}
		for _, c := range comments(s) {
			if vague.MatchString(c.text) {
				fmt.Printf("%s:%d: %s\n", c.path, c.line, c.text)
			}
		}
	}
}

// printNumbers prints the numbers of the house, tests left out, and holds the
// share of vague actors.
func printNumbers(t *testing.T, all []source) {
	var m measure
	for _, s := range all {
		m.add(s)
	}
	for _, is := range types(all) {
		m.types(is)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	m.readme = len(strings.Fields(string(readme)))
	t.Log("\n" + m.String())
	if share := m.vagueShare(); share > maxVague {
		t.Errorf("%.2f %% of the comment lines have a vague actor, at most %.1f; go test -run TestHouse -v . -vague FOLDER prints them", share, maxVague)
	}
}
