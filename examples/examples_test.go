// Package examples_test runs the examples against a daemon.
package examples_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
)

// build compiles a program of this module.
func build(t *testing.T, dir, pkg string) string {
	t.Helper()
	program := filepath.Join(dir, filepath.Base(pkg))
	if out, err := exec.Command("go", "build", "-o", program, pkg).CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
	return program
}

// serve runs a daemon of 64 MiB without a disk, and returns its socket.
func serve(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kv") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	ctx, stop := context.WithCancel(context.Background())
	daemon := exec.CommandContext(ctx, build(t, dir, "../cmd/kvstored"), "serve")
	daemon.Cancel = func() error { return daemon.Process.Signal(os.Interrupt) }
	daemon.Env = append(os.Environ(), "KVSTORED_LISTEN__SOCKET="+socket, "KVSTORED_ADMIN__LISTEN=",
		"KVSTORED_CPU__CAPACITY=64MiB", "KVSTORED_CPU__HUGEPAGES=off", "KVSTORED_DISK__CAPACITY=0")
	daemon.Stderr = t.Output()
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	for {
		c, err := client.Dial(t.Context(), socket, client.Options{})
		if err == nil {
			c.Close()
			return socket
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the daemon ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// patient runs the Python example with a client for which nothing is late on a busy
// machine: what is late is a miss.
const patient = `
import functools, runpy, kvstored.connection
kvstored.connection._HELLO = 60
kvstored.Client = functools.partial(kvstored.Client, timeout=60)
runpy.run_path("prompt.py", run_name="__main__")
`

// TestExamples: the Go program stores a prompt and finds it, and so does the
// Python one, which finds the same chunks.
func TestExamples(t *testing.T) {
	const none, all = "0 chunks loaded, 4 computed and stored\n", "4 chunks loaded, 0 computed and stored\n"
	socket := serve(t)
	program := build(t, t.TempDir(), "./prompt")
	for _, want := range []string{none, all} {
		if out, err := exec.Command(program, "-socket", socket).CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("Go: %q, %v; want %q", out, err, want)
		}
	}
	python, ok := withNumpy()
	if !ok {
		if os.Getenv("CI") != "" {
			t.Fatal("there is no python3 with numpy, and CI skips nothing")
		}
		t.Skip("there is no python3 with numpy: the Python example is not run")
	}
	other := serve(t)
	for _, tt := range []struct{ socket, want string }{{socket, all}, {other, none}, {other, all}} {
		cmd := exec.Command(python, "-B", "-c", patient)
		cmd.Env = append(os.Environ(), "KVSTORED_SOCKET="+tt.socket, "PYTHONPATH="+filepath.Join("..", "clients", "python"))
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != tt.want {
			t.Errorf("Python: %q, %v; want %q", out, err, tt.want)
		}
	}
	if out, err := exec.Command(program, "-socket", other).CombinedOutput(); err != nil || string(out) != all {
		t.Errorf("Go, of what Python stored: %q, %v", out, err)
	}
}

func withNumpy() (path string, ok bool) {
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if path, err := exec.LookPath(name); err == nil && exec.Command(path, "-c", "import numpy").Run() == nil {
			return path, true
		}
	}
	return "", false
}

// TestReadme: the commands of README.md name files that are there.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, named := range []string{"go run ./examples/prompt", "python3 examples/prompt.py", "go test ./examples"} {
		if !strings.Contains(string(text), named) {
			t.Errorf("README.md does not say %s", named)
		}
		for _, word := range strings.Fields(named) {
			if path, ok := strings.CutPrefix(strings.TrimPrefix(word, "./"), "examples"); ok {
				if _, err := os.Stat("." + path); err != nil {
					t.Error(err)
				}
			}
		}
	}
}
