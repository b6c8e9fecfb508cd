package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
)

// withoutDisk runs a daemon of 64 MiB without a disk, and returns its socket.
func withoutDisk(t *testing.T) string {
	t.Helper()
	return daemon.Start(t, func(c *config.Config) { c.Disk.Capacity = 0 }).Socket
}

// patient runs the Python example with a client for which nothing is late on a busy
// machine: what is late is a miss.
const patient = `
import functools, runpy, kvstored._connection
kvstored._connection._HELLO = 60
kvstored.Client = functools.partial(kvstored.Client, timeout=60)
runpy.run_path("prompt.py", run_name="__main__")
`

// TestExamples: the Go program stores a prompt and finds it, and so does the
// Python one, which finds the same chunks.
func TestExamples(t *testing.T) {
	const none, all = "0 chunks loaded, 4 computed and stored\n", "4 chunks loaded, 0 computed and stored\n"
	socket := withoutDisk(t)
	program, err := daemon.Build("./examples/prompt")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{none, all} {
		if out, err := exec.Command(program, "-socket", socket).CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("Go: %q, %v; want %q", out, err, want)
		}
	}
	python := need.Python(t, "numpy")
	other := withoutDisk(t)
	for _, tt := range []struct{ socket, want string }{{socket, all}, {other, none}, {other, all}} {
		cmd := exec.Command(python, "-B", "-c", patient)
		cmd.Dir = filepath.Join(daemon.Root(), "examples")
		cmd.Env = append(os.Environ(), "KVSTORED_SOCKET="+tt.socket, "PYTHONPATH="+filepath.Join("..", "clients", "python", "src"))
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != tt.want {
			t.Errorf("Python: %q, %v; want %q", out, err, tt.want)
		}
	}
	if out, err := exec.Command(program, "-socket", other).CombinedOutput(); err != nil || string(out) != all {
		t.Errorf("Go, of what Python stored: %q, %v", out, err)
	}
}
