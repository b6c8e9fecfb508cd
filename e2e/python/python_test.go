package python_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
)

// client is the folder of the Python client.
func client() string { return filepath.Join(daemon.Root(), "clients", "python") }

// TestPython runs the unittests of each module against daemons of this tree.
func TestPython(t *testing.T) {
	t.Parallel()
	python := need.Python(t, "numpy")
	env := append(os.Environ(), "KVSTORED_BIN="+daemon.Program(t), "PYTHONPATH=.")
	modules, err := filepath.Glob(filepath.Join(client(), "tests", "test_*.py"))
	if err != nil || len(modules) == 0 {
		t.Fatalf("no modules: %v", err)
	}
	for _, path := range modules {
		name := strings.TrimSuffix(filepath.Base(path), ".py")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tests := exec.CommandContext(t.Context(), python, "-B", "-X", "faulthandler", "-m", "unittest", "tests."+name)
			tests.Dir, tests.Env = client(), env
			out, err := tests.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}
