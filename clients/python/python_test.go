// Package python_test runs the tests of the Python client with `go test ./...`.
package python_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// interpreter is a python3, one that has numpy if there is such a one.
func interpreter() (found string) {
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if exec.Command(path, "-c", "import numpy").Run() == nil {
			return path
		}
		if found == "" {
			found = path
		}
	}
	return found
}

// TestPython runs the unittests against a daemon built from this tree. Without
// python3 it is skipped, except in CI.
func TestPython(t *testing.T) {
	python := interpreter()
	if python == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("python3 is not installed, and CI skips nothing")
		}
		t.Skip("python3 is not installed: the Python client is not tested")
	}
	dependOn(t, ".", ".py", ".json", ".md", ".toml")
	dependOn(t, "../..", ".go", ".mod", ".txt", ".hex")
	dependOn(t, "../../bench/gpu", ".py")
	binary := filepath.Join(t.TempDir(), "kvstored")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/kvstored")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	tests := exec.Command(python, "-B", "-X", "faulthandler", "-m", "unittest", "discover", "-t", ".", "-s", "tests")
	tests.Env = append(os.Environ(), "KVSTORED_BIN="+binary, "PYTHONPATH=.")
	if out, err := tests.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
}

// dependOn looks at all files below root that end so, as a cached result of
// this test stands for those that it looked at.
func dependOn(t *testing.T, root string, suffixes ...string) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && slices.Contains(suffixes, filepath.Ext(path)) {
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
