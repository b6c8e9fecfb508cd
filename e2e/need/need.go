package need

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Missing skips the test, or fails it in CI. The format says what is missing and what
// brings it.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	what := fmt.Sprintf(format, args...)
	if os.Getenv("CI") == "true" {
		t.Fatal(what + "; CI skips nothing")
	}
	t.Skip(what)
}

// Program is the path of a program, which a package brings.
func Program(t testing.TB, name, from string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, "%v: %s brings it", err, from)
	}
	return path
}

// Python is an interpreter that has all modules. The system's has those of the system's
// packages, and need not be the first in the path.
func Python(t testing.TB, modules ...string) string {
	t.Helper()
	script := "pass"
	if len(modules) > 0 {
		script = "import " + strings.Join(modules, ", ")
	}
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if path, err := exec.LookPath(name); err == nil && exec.Command(path, "-c", script).Run() == nil {
			return path
		}
	}
	Missing(t, "there is no python3 with %q: the packages python3-NAME bring them", modules)
	return ""
}

// Root wants the test to be run by root.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("it takes root")
	}
}
