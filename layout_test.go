// Package kvstored_test enforces the layout of the module.
package kvstored_test

import (
	"errors"
	"go/build"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kvstored/kvstored"

// modules are the nested ones that keep the limits of the house. They import from the
// root, and nothing imports from them.
var modules = []string{"bench", "lab", "router"}

// layered are those with rows.
var layered = []string{"lab", "router"}

// rows is the layout, lowest first. A package imports only from rows below
// its own, never from its own, and never from a nested
// module that is not its own.
var rows = [][]string{
	{"internal/test/pipe", "internal/wire/wiretest"}, // for tests
	{"internal/base"},
	{"clients/python", "internal/access", "internal/arena", "internal/human", "internal/httpd", "internal/socket"},
	{"key", "policy", "config", "internal/budget"},
	{"internal/wire/gen"}, // prints codecs from the schema
	{"internal/database", "internal/explain", "internal/index", "internal/ledger", "internal/stale", "internal/wire"},
	{"tier", "internal/fdstore"},
	{"internal/writeback", "internal/server/hint"},
	{"internal/store"},
	{"internal/test/nested", "internal/database/databasetest"}, // for tests
	{"policy/policytest", "tier/tierfault", "internal/test/faultfs", "internal/test/logtest", "internal/test/s3test"}, // for tests
	{"tier/tiertest"}, // for tests
	{"disk/internal/folders"},
	{"disk/internal/blockio"},
	{"disk/internal/metadata"},
	{"cpu", "disk", "remote", "prefetch", "client"},
	{"internal/server", "internal/resp"},
	{"internal/resp/blobtest", "internal/resp/resptest"}, // for tests
	{"internal/admin"},
	{"internal/daemon"},
	{"cmd/kvstored", "internal/test/nested/prepare", "examples/prompt"},
	{"lab/replay"},
	{"lab/simulate"}, // reads the traces of replay
	{"lab/whatif"},   // plays its caches
	{"lab/cmd/kvstored-lab"},
	{"router/zmtp", "router/index"},
	{"router/event", "router/pick", "router/reach"},
	{"router/feed/feedtest"}, // for tests
	{"router/feed", "router/publish", "router/config"},
	{"router/route", "router/bridge"},
	{"router/bench/trace"},
	{"router/cmd/kvstored-router", "router/bench/index", "router/bench/routing"},
}

// forTests are packages that no code but tests may import.
var forTests = []string{"policy/policytest", "tier/tierfault", "tier/tiertest", "internal/test/faultfs", "router/feed/feedtest", "internal/test/logtest", "internal/test/nested", "internal/test/nested/prepare", "internal/test/s3test", "internal/resp/blobtest", "internal/resp/resptest", "internal/database/databasetest", "internal/test/pipe", "internal/wire/gen", "internal/wire/wiretest"}

// never lists what a package may not reach, not even through others. A path
// covers what lies below it.
var never = []struct{ pkg, what, why, but string }{
	{"policy", module, "policies are data structures only", module + "/internal/base"},
	{"router/index", module, "a router links the index and nothing else of ours", ""},
	{"prefetch", module + "/tier", "prefetch sees a Source and does not know what a tier is", ""},
	{"internal/server", "github.com/dgraph-io/badger", "the server knows tiers, not their databases", ""},
	{"internal/server", "github.com/aws", "the server knows tiers, not their stores", ""},
	{"client", "github.com/dgraph-io/badger", "engines link the client", ""},
	{"client", "github.com/aws", "engines link the client", ""},
	{"client", "net/http", "engines link the client; administrators have admin.socket", ""},
}

// only lists the packages that may import a library directly.
var only = []struct {
	library string
	pkgs    []string
}{
	{"github.com/dgraph-io/badger", []string{"internal/database", "internal/database/databasetest"}},
	{"github.com/aws", []string{"remote"}},
	{"github.com/goccy/go-yaml", []string{"config"}},
	{"github.com/spf13/cobra", []string{"cmd/kvstored", "lab/cmd/kvstored-lab", "router/cmd/kvstored-router"}},
}

// goPackage is a package of the module.
type goPackage struct {
	pkg     string // from the module's root, with slashes
	goFiles []string
	files   []string // all that it is built from, from the module's root
	imports []string // import paths, of all but test files
	deps    []string // imports, and those of our packages among them, and so on
}

// list reads the packages of the module, without the go command: what it would say is in
// the files.
func list(t *testing.T) []goPackage {
	t.Helper()
	system := build.Default
	system.GOOS, system.CgoEnabled, system.Dir = "linux", false, "."
	byPath := map[string]*goPackage{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if err := skipFolder(name, d.Name()); err != nil && !slices.Contains(layered, name) {
			return err
		}
		found, err := system.ImportDir(name, 0)
		var empty *build.NoGoError
		if errors.As(err, &empty) {
			return nil
		}
		pkg := filepath.ToSlash(name)
		if err != nil {
			return err
		}
		p := &goPackage{pkg: pkg, goFiles: found.GoFiles, imports: found.Imports}
		for _, pattern := range slices.Concat(found.GoFiles, found.SFiles, found.EmbedPatterns) {
			files, err := filepath.Glob(filepath.Join(name, strings.TrimPrefix(pattern, "all:")))
			if err != nil {
				return err
			}
			p.files = append(p.files, files...)
		}
		byPath[module+"/"+pkg] = p
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []goPackage
	for _, p := range byPath {
		reached := map[string]bool{}
		reach(byPath, p, reached)
		for dep := range reached {
			p.deps = append(p.deps, dep)
		}
		all = append(all, *p)
	}
	if len(all) == 0 {
		t.Fatal("there are no packages")
	}
	return all
}

func reach(byPath map[string]*goPackage, p *goPackage, reached map[string]bool) {
	for _, path := range p.imports {
		if reached[path] {
			continue
		}
		reached[path] = true
		if next := byPath[path]; next != nil {
			reach(byPath, next, reached)
		}
	}
}

func TestImports(t *testing.T) {
	for _, p := range list(t) {
		if len(p.goFiles) > 0 { // else only tests
			checkRow(t, p)
			checkNever(t, p)
			checkOnly(t, p)
		}
	}
}

// row returns the row of a package, -1 if it is in none.
func row(pkg string) int {
	return slices.IndexFunc(rows, func(row []string) bool { return slices.Contains(row, pkg) })
}

func checkRow(t *testing.T, p goPackage) {
	pkg := p.pkg
	own := row(pkg)
	if own < 0 {
		t.Errorf("%s is in no row of the layout; add it to rows in layout_test.go", pkg)
		return
	}
	for _, path := range p.imports {
		imported, ours := local(path)
		if !ours {
			continue
		}
		if m := moduleOf(imported); m != "" && m != moduleOf(pkg) {
			t.Errorf("%s imports %s, of the module in %s; that one may import it, and not the other way", pkg, imported, m)
		}
		if below := row(imported); below >= own {
			t.Errorf("%s (row %d) imports %s (row %d); imports go down only, never inside a row", pkg, own, imported, below)
		}
		if slices.Contains(forTests, imported) && !slices.Contains(forTests, pkg) && !under(pkg, "router/bench") {
			t.Errorf("%s imports %s, which is for tests only", pkg, imported)
		}
	}
}

func checkNever(t *testing.T, p goPackage) {
	for _, rule := range never {
		if rule.pkg != p.pkg {
			continue
		}
		for _, dep := range p.deps {
			if under(dep, rule.what) && dep != rule.but {
				t.Errorf("%s reaches %s: %s (find the way with `go mod why` or `go list -deps`)", p.pkg, dep, rule.why)
			}
		}
	}
}

func checkOnly(t *testing.T, p goPackage) {
	for _, rule := range only {
		for _, path := range p.imports {
			if under(path, rule.library) && !slices.Contains(rule.pkgs, p.pkg) {
				t.Errorf("%s imports %s; only %s may", p.pkg, path, strings.Join(rule.pkgs, ", "))
			}
		}
	}
}

// moduleOf is the folder of the nested module that a package is of; "" is the root's.
func moduleOf(pkg string) string {
	for _, m := range modules {
		if under(pkg, m) {
			return m
		}
	}
	return ""
}

// local cuts the module from an import path of ours.
func local(path string) (pkg string, ours bool) { return strings.CutPrefix(path, module+"/") }

// under reports whether path is root or lies below it.
func under(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// The tables themselves must not name what does not exist, or a rule would be
// lost in a renaming. Packages that are planned are named here until they are
// there.
func TestTablesNameRealPackages(t *testing.T) {
	var planned []string
	exists := map[string]bool{}
	for _, p := range list(t) {
		exists[p.pkg] = true
	}
	for _, pkg := range slices.Concat(rows...) {
		if !exists[pkg] && !slices.Contains(planned, pkg) {
			t.Errorf("the layout names %s, which is not there", pkg)
		}
		if exists[pkg] && slices.Contains(planned, pkg) {
			t.Errorf("%s is there; strike it from planned", pkg)
		}
	}
}
