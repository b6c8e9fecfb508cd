package kvstored_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fenced is a block of code in Markdown, whose brackets and hashes mean nothing.
var fenced = regexp.MustCompile("(?ms)^```.*?^```")

// page is Markdown without its blocks of code.
func page(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fenced.ReplaceAllString(string(data), "")
}

// anchors are the headings of a page as links name them: lower case, without
// punctuation, with hyphens for spaces.
func anchors(t *testing.T, path string) map[string]bool {
	t.Helper()
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page(t, path), -1) {
		found[strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return found
}

// pages are the Markdown files of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "build"):
			return fs.SkipDir
		case filepath.Ext(name) == ".md":
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestLinks: what the documentation links to in this repository is there, and has
// the heading.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	links := 0
	for _, from := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(page(t, from), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") { // of another host
				continue
			}
			links++
			to := from
			if target != "" {
				to = filepath.Join(filepath.Dir(from), target)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", from, m[1], err)
			} else if anchor != "" && !anchors(t, to)[anchor] {
				t.Errorf("%s links to %s, and %s has no such heading", from, m[1], to)
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links were found", links)
	}
}

// TestPaths: the files and packages that the documentation names are there.
func TestPaths(t *testing.T) {
	name := regexp.MustCompile("`(\\.?\\.?/?(?:bench|client|clients|cmd|config|cpu|deploy|disk|docs|e2e|examples|internal|key|policy|prefetch|remote|router|testdata|tier)/[A-Za-z0-9_./-]+)`")
	paths := 0
	for _, from := range pages(t) {
		for _, m := range name.FindAllStringSubmatch(page(t, from), -1) {
			paths++
			if _, err := os.Stat(strings.TrimPrefix(m[1], "./")); err != nil {
				t.Errorf("%s names %s: %v", from, m[1], err)
			}
		}
	}
	if paths < 30 {
		t.Errorf("only %d paths were found", paths)
	}
}

// TestRooms: docs/architecture.md, and of another module its README, names every package
// of the layout but those for tests, benchmarks and examples.
func TestRooms(t *testing.T) {
	for _, row := range rows {
		for _, pkg := range row {
			page := "docs/architecture.md"
			if m := moduleOf(pkg); m != "" {
				page = m + "/README.md"
			}
			data, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(forTests, pkg) && !under(pkg, "bench") && !under(pkg, "router/bench") && !under(pkg, "examples") && !strings.Contains(string(data), "`"+pkg+"`") {
				t.Errorf("%s does not name %s", page, pkg)
			}
		}
	}
}

// TestReadmeHasTheLine: the line for vLLM is that of docs/engines.md, which the
// Python tests read.
func TestReadmeHasTheLine(t *testing.T) {
	line := regexp.MustCompile("(?m)^.*vllm serve .*$")
	var lines []string
	for _, path := range []string{"README.md", "docs/engines.md"} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line.FindString(string(data)))
	}
	if lines[0] == "" || lines[0] != lines[1] {
		t.Errorf("README.md has\n%s\ndocs/engines.md has\n%s", lines[0], lines[1])
	}
}

// TestReadmeIsShort: the README is a front door; longer texts are pages of docs.
func TestReadmeIsShort(t *testing.T) {
	data, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), "\n"); n > 150 {
		t.Errorf("README.md has %d lines; put what is more than 150 into docs/", n)
	}
}

// TestExamples: the commands of examples/README.md name files that are there.
func TestExamples(t *testing.T) {
	text, err := os.ReadFile("examples/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, named := range []string{"go run ./examples/prompt", "python3 examples/prompt.py", "go -C e2e test ./examples"} {
		if !strings.Contains(string(text), named) {
			t.Errorf("examples/README.md does not say %s", named)
		}
	}
	for _, path := range []string{"examples/prompt/main.go", "examples/prompt.py", "e2e/examples"} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

// goCommand is a run of tests or of a benchmark in the documentation.
var goCommand = regexp.MustCompile("go (-C \\S+ )?(test|run)((?: (?:'[^']*'|[^`'#\\n ]+))+)")

// goFlags are those of the go command and of its tests that the documentation
// uses.
var goFlags = []string{"C", "bench", "count", "fuzz", "list", "race", "run", "timeout", "update", "v"}

// TestGoCommands: the tests, benchmarks and flags that the documentation runs
// exist.
func TestGoCommands(t *testing.T) {
	commands := 0
	for _, from := range pages(t) {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range goCommand.FindAllStringSubmatch(string(data), -1) {
			if checkGoCommand(t, from, strings.TrimPrefix(m[1], "-C "), m[2], strings.Fields(m[3])) {
				commands++
			}
		}
	}
	if commands < 30 {
		t.Errorf("only %d commands were found", commands)
	}
}

// checkGoCommand checks a command for one package of ours, below a module's folder, and
// reports whether it is one.
func checkGoCommand(t *testing.T, page, module, verb string, args []string) bool {
	t.Helper()
	i := slices.IndexFunc(args, func(arg string) bool { return arg == "." || strings.HasPrefix(arg, "./") && arg != "./..." })
	if i < 0 || slices.Contains(args, "-C") {
		return false
	}
	source := sourceOf(t, filepath.Join(strings.TrimSpace(module), args[i]))
	if source == "" {
		t.Errorf("%s runs %s, where there is no Go", page, args[i])
		return true
	}
	for i, arg := range args {
		name, ok := strings.CutPrefix(arg, "-")
		name, _, _ = strings.Cut(strings.TrimLeft(name, "-"), "=")
		if !ok || name == "" || strings.ContainsAny(name, "'^$|") {
			continue
		}
		isOurs := regexp.MustCompile(`\.\w+\((?:&?[\w.]+, )?"` + regexp.QuoteMeta(name) + `"`).MatchString(source)
		if !isOurs && (verb == "run" || !slices.Contains(goFlags, name)) {
			t.Errorf("%s runs %s with -%s, which it does not have", page, args[0], name)
		}
		if verb == "test" && name == "run" && i+1 < len(args) && strings.Trim(args[i+1], "'") != "^$" {
			names, _, _ := strings.Cut(strings.Trim(args[i+1], "'"), "/")
			pattern := `func (Test|Fuzz)?\w*(` + names + `)\w*\(`
			if !regexp.MustCompile(pattern).MatchString(source) {
				t.Errorf("%s runs the test %s, which there is not", page, args[i+1])
			}
		}
	}
	return true
}

// sourceOf is the Go of a package, its tests included.
func sourceOf(t *testing.T, dir string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}
