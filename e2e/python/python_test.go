package python_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
)

// client is the folder of the Python client.
func client() string { return filepath.Join(daemon.Root(), "clients", "python") }

// extension compiles the package's extension and returns its path; "" where that cannot be.
func extension(t *testing.T, python string) string {
	t.Helper()
	headers, err := exec.Command(python, "-c", "import sysconfig; print(sysconfig.get_path('include'))").Output()
	if err != nil {
		t.Fatal(err)
	}
	built := filepath.Join(t.TempDir(), "_bulk.abi3.so")
	source := filepath.Join(client(), "src", "kvstored", "_bulk.c")
	out, err := exec.Command("gcc", "-O3", "-shared", "-fPIC", "-I"+strings.TrimSpace(string(headers)), "-o", built, source).CombinedOutput()
	if err != nil {
		t.Logf("the package runs without its extension: %v\n%s", err, out)
		return ""
	}
	return built
}

// TestPython runs the unittests of each module against daemons of this tree.
func TestPython(t *testing.T) {
	t.Parallel()
	python := need.Python(t, "numpy")
	env := append(os.Environ(), "KVSTORED_BIN="+daemon.Program(t), "PYTHONPATH=.")
	env, built := slices.Clip(env), extension(t, python)
	modules, err := filepath.Glob(filepath.Join(client(), "tests", "test_*.py"))
	if err != nil || len(modules) == 0 {
		t.Fatalf("no modules: %v", err)
	}
	run := func(name, module string, env []string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tests := exec.CommandContext(t.Context(), python, "-B", "-X", "faulthandler", "-m", "unittest", "tests."+module)
			tests.Dir, tests.Env = client(), env
			out, err := tests.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
	for _, path := range modules {
		name := strings.TrimSuffix(filepath.Base(path), ".py")
		run(name, name, append(env, "KVSTORED_BULK="+built))
	}
	for _, name := range []string{"test_places", "test_handovers", "test_vllm", "test_sglang", "test_lmcache_backend"} {
		run(name+"_pure", name, env)
	}
}
