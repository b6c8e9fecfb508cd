package python_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
)

const pyright = "pyright@1.1.414"

// npmExec returns the command before the arguments of pyright. Tests download
// nothing: where npm is missing, or has no pyright in its cache, they are skipped,
// except in CI.
func npmExec(t *testing.T) []string {
	t.Helper()
	command := []string{"npm", "exec", "--yes", "--offline", "--package=" + pyright, "--", "pyright"}
	if out, err := exec.Command(command[0], append(command[1:], "--version")...).CombinedOutput(); err != nil {
		need.Missing(t, "pyright: %v; npm exec --yes --package=%s -- pyright --version brings it\n%s", err, pyright, out)
	}
	return command
}

// TestTypes checks the package, llamacpp and the examples of its README with pyright, which
// finds one mistake: the one that is made for it, or it finds nothing at all.
func TestTypes(t *testing.T) {
	t.Parallel()
	command := npmExec(t)
	dir := t.TempDir()
	for _, folder := range []string{filepath.Join(client(), "src", "kvstored"), filepath.Join(daemon.Root(), "cmd", "kvstored", "llamacpp")} {
		if err := os.CopyFS(filepath.Join(dir, filepath.Base(folder)), os.DirFS(folder)); err != nil {
			t.Fatal(err)
		}
	}
	readme, err := os.ReadFile(filepath.Join(client(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	examples := strings.Split(string(readme), "\n```python\n")[1:]
	if len(examples) == 0 {
		t.Fatalf("%d examples in README.md", len(examples))
	}
	for i, example := range examples {
		code, _, _ := strings.Cut(example, "\n```\n")
		write(t, filepath.Join(dir, fmt.Sprintf("example%d.py", i)), code+"\n")
	}
	write(t, filepath.Join(dir, "pyrightconfig.json"), `{"typeCheckingMode": "basic", "pythonVersion": "3.10"}`)
	write(t, filepath.Join(dir, "wrong.py"), "import kvstored\n\nkvstored.Client().lookup(5)\n")
	check := exec.CommandContext(t.Context(), command[0], append(command[1:], "--project", dir)...)
	check.Dir = dir
	out, err := check.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "wrong.py:3:26 - error") || strings.Count(string(out), " - error") != 1 {
		t.Errorf("%v\n%s", err, out)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
