package main

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var reproducible = flag.String("reproducible", "", "systems, such as linux/amd64, that TestReproducible compiles everything for twice: minutes each")

// Two clones of a commit in different folders make the same files, byte for byte, of
// programs that were compiled anew for each, on machines with different names.
func TestReproducible(t *testing.T) {
	if *reproducible == "" {
		t.Skip("-reproducible")
	}
	sums := map[string][]byte{}
	for _, dir := range []string{"a", "another/folder, deeper"} {
		source, out := filepath.Join(t.TempDir(), dir), filepath.Join(t.TempDir(), "out")
		if text, err := exec.CommandContext(t.Context(), "git", "clone", "-q", "../..", source).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		t.Setenv("GOCACHE", filepath.Join(t.TempDir(), "cache"))
		if err := run(t.Context(), []string{"-source", source, "-out", out, "-only", *reproducible}); err != nil {
			t.Fatal(err)
		}
		check(t, out, sums)
	}
}

// check compares the files with those of the run before.
func check(t *testing.T, out string, before map[string][]byte) {
	t.Helper()
	first := len(before) == 0
	files, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(out, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		kinds[filepath.Ext(f.Name())]++
		if first {
			before[f.Name()] = data
			t.Logf("%10d %s", len(data), f.Name())
		} else if !bytes.Equal(before[f.Name()], data) {
			t.Errorf("%s differs: %d and %d bytes", f.Name(), len(before[f.Name()]), len(data))
		}
		if filepath.Ext(f.Name()) == ".rpm" && bytes.Contains(data, []byte("\x00"+host+"\x00")) {
			t.Errorf("%s has the name of this machine, %s", f.Name(), host)
		}
	}
	if !first && len(files) != len(before) {
		t.Errorf("%d files, and %d before", len(files), len(before))
	}
	if all := len(products) * strings.Count(*reproducible, "/"); kinds[".deb"] != all || kinds[".rpm"] != all || kinds[".gz"] != all || kinds[".json"] != all {
		t.Errorf("files by kind: %v", kinds)
	}
	cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	cmd.Dir = out
	if text, err := cmd.CombinedOutput(); err != nil || strings.Count(string(text), ": OK") != len(files)-1 {
		t.Errorf("SHA256SUMS: %v\n%s", err, text)
	}
}
