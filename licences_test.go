package kvstored_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write THIRD_PARTY anew")

const (
	thirdPartyPath = "THIRD_PARTY"
	thirdPartyHead = `Other people's work that is linked into the programs kvstored, kvstored-lab and
kvstored-router, with its licences and notices. Made by "go test -run TestThirdParty -update ."

`
	modulesBegin = "==== Go modules ====\n"
)

// linkedModule is a module with packages in one of the programs.
type linkedModule struct {
	Path, Version, Dir string
	folders            map[string]bool // of those packages, and what is above them in the module
}

// linked are the modules of the programs.
func linked(t *testing.T) []linkedModule {
	t.Helper()
	found := map[string]linkedModule{}
	for _, program := range []string{"cmd/kvstored", "lab/cmd/kvstored-lab", "router/cmd/kvstored-router"} {
		addLinked(t, found, program)
	}
	return slices.SortedFunc(maps.Values(found), func(a, b linkedModule) int { return strings.Compare(a.Path, b.Path) })
}

// addLinked adds the modules of a program.
func addLinked(t *testing.T, found map[string]linkedModule, program string) {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=Dir,Module", ".")
	cmd.Dir, cmd.Env = program, append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg struct {
			Dir    string
			Module *linkedModule
		}
		if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		m := pkg.Module
		if m == nil || under(m.Path, module) {
			continue
		}
		if other, ok := found[m.Path]; !ok {
			m.folders = map[string]bool{}
			found[m.Path] = *m
		} else if other.Version != m.Version {
			t.Errorf("%s is linked in versions %s and %s; make the go.mod files agree", m.Path, other.Version, m.Version)
		}
		for dir := pkg.Dir; len(dir) >= len(m.Dir); dir = filepath.Dir(dir) {
			found[m.Path].folders[dir] = true
		}
	}
}

// legalFile is the name of a file that must go along with a copy of a module.
var legalFile = regexp.MustCompile(`(?i)^(licen[cs]e|notice|copying|copyright|patents)([._-].*)?$`)

// legalTexts are those files of a folder, by name.
func legalTexts(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, e := range entries {
		if e.IsDir() || !legalFile.MatchString(e.Name()) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for line := range strings.Lines(strings.ReplaceAll(string(data), "\r", "")) {
			text.WriteString(strings.TrimRight(line, " \t\n") + "\n")
		}
		texts[e.Name()] = strings.Trim(text.String(), "\n") + "\n"
	}
	return texts
}

// thirdParty is the part of THIRD_PARTY that is about modules. A text that several
// have is there once.
func thirdParty(t *testing.T) string {
	t.Helper()
	var list, texts strings.Builder
	number := map[string]int{}
	for _, m := range linked(t) {
		legal := map[string]string{}
		for dir := range m.folders {
			for name, text := range legalTexts(t, dir) {
				legal[strings.TrimPrefix(filepath.Join(dir, name), m.Dir+"/")] = text
			}
		}
		if len(legal) == 0 {
			t.Errorf("%s has no licence that THIRD_PARTY could list", m.Path)
		}
		fmt.Fprintf(&list, "%s %s:", m.Path, m.Version)
		for _, name := range slices.Sorted(maps.Keys(legal)) {
			text := legal[name]
			if number[text] == 0 {
				number[text] = len(number) + 1
				fmt.Fprintf(&texts, "\n==== text %d ====\n\n%s", number[text], text)
			}
			fmt.Fprintf(&list, " %s is text %d;", name, number[text])
		}
		list.WriteString("\n")
	}
	return list.String() + texts.String()
}

// TestThirdParty: THIRD_PARTY has every module that is linked into a program, in
// the version of go.mod, with its licence and notices.
func TestThirdParty(t *testing.T) {
	want := thirdParty(t)
	if *update {
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			t.Fatal(err)
		}
		license := legalTexts(t, strings.TrimSpace(string(root)))["LICENSE"]
		if license == "" {
			t.Fatal("this Go has no LICENSE beside it")
		}
		all := thirdPartyHead + "==== Go, its runtime and standard library ====\n\n" + license + "\n" + modulesBegin + "\n" + want
		if err := os.WriteFile(thirdPartyPath, []byte(all), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	data, err := os.ReadFile(thirdPartyPath)
	if err != nil {
		t.Fatal(err)
	}
	if _, got, _ := strings.Cut(string(data), modulesBegin+"\n"); got != want {
		t.Errorf("%s is not what go.mod links; `go test -run TestThirdParty -update .` writes it anew", thirdPartyPath)
	}
}

// TestLicence: the licence is whole, and whose it is stands in it.
func TestLicence(t *testing.T) {
	for path, want := range map[string]string{
		"LICENSE": "Apache License\n                           Version 2.0, January 2004",
		"NOTICE":  "The kvstored authors",
	} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), want) || !strings.Contains(string(data), "Copyright 2026 The kvstored authors") {
			t.Errorf("%s does not say %q, or whose it is", path, want)
		}
	}
}
