package python_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const pyright = "pyright@1.1.414"

// TestTypes checks the package and the examples of its README with pyright.
// Without npm it is skipped, except in CI.
func TestTypes(t *testing.T) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("npm is not installed, and CI skips nothing")
		}
		t.Skip("npm is not installed: the types of the Python client are not checked")
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "kvstored"), os.DirFS("kvstored")); err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := strings.Split(string(readme), "\n```python\n")[1:]
	if len(examples) < 2 {
		t.Fatalf("%d examples in README.md", len(examples))
	}
	for i, example := range examples {
		code, _, _ := strings.Cut(example, "\n```\n")
		write(t, filepath.Join(dir, fmt.Sprintf("example%d.py", i)), code+"\n")
	}
	write(t, filepath.Join(dir, "pyrightconfig.json"), `{"typeCheckingMode": "basic", "pythonVersion": "3.9"}`)
	check := exec.Command(npm, "exec", "--yes", "--package="+pyright, "--", "pyright", "--project", dir)
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// What it must find, or it finds nothing at all.
	write(t, filepath.Join(dir, "wrong.py"), "import kvstored\n\nkvstored.Client().lookup(5)\n")
	check = exec.Command(npm, "exec", "--yes", "--package="+pyright, "--", "pyright", "--project", dir)
	check.Dir = dir
	if out, err := check.CombinedOutput(); err == nil || !strings.Contains(string(out), "wrong.py:3:26 - error") {
		t.Errorf("a mistake was not found: %v\n%s", err, out)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
