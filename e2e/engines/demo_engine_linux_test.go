package engines_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
)

// engineRig is an environment for demo --engine: a PATH with python3 alone, a
// cache of its own, and a folder for what the demo makes.
type engineRig struct{ bin, cache, work string }

// interpreter is the path of python3 itself, not of a script that finds it.
var interpreter = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(out)), err
})

func newEngineRig(t *testing.T) engineRig {
	t.Helper()
	python, err := interpreter()
	switch {
	case runtime.GOARCH != "amd64":
		t.Skip("the library is for x86-64")
	case err != nil:
		need.Missing(t, "python3: %v", err)
	}
	work, err := os.MkdirTemp("", "kvstored-test-") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(work) })
	daemon.Program(t) // is built with more than the rig's PATH has
	r := engineRig{bin: t.TempDir(), cache: t.TempDir(), work: work}
	t.Setenv("PATH", r.bin)
	t.Setenv("XDG_CACHE_HOME", r.cache)
	t.Setenv("KVSTORED_LLAMA", "")
	r.script(t, "python3", "exec "+python+` "$@"`)
	return r
}

// script puts a program of one line into PATH.
func (r engineRig) script(t *testing.T, name, line string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.bin, name), []byte("#!/bin/sh\n"+line+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}

// left are the files that a run has left.
func (r engineRig) left(t *testing.T) (paths []string) {
	t.Helper()
	for _, root := range []string{r.work, r.cache} {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && (!e.IsDir() || root == r.work && path != root) {
				paths = append(paths, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

const wrongFile = "echo other bytes >node-llama-cpp-linux-x64-3.22.1.tgz"

// TestEngineRefuses: what is missing or wrong ends the demo before anything of the
// library is run, says what to do, and leaves nothing behind.
func TestEngineRefuses(t *testing.T) {
	wrong := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(wrong, []byte("other bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		python, npm string // scripts; empty: the real one, and none
		given       string // KVSTORED_LLAMA
		args        []string
		code        int
		says        string
	}{
		"no python":      {python: "-", says: "python3 is not in PATH"},
		"half a python":  {python: "echo No module named ctypes >&2; exit 1", says: "No module named ctypes"},
		"no npm":         {args: []string{"--yes"}, says: "npm is not installed"},
		"no terminal":    {npm: wrongFile, code: daemon.ExitUsage, says: "--yes says that it may be"},
		"no network":     {npm: "echo there is no network >&2; exit 1", args: []string{"--yes"}, says: "there is no network"},
		"wrong sum":      {npm: wrongFile, args: []string{"--yes"}, says: "nothing of it was run"},
		"another file":   {npm: "echo x >other.tgz", args: []string{"--yes"}, says: "brought nothing"},
		"given, wrong":   {given: wrong, says: "nothing of it was run"},
		"given, missing": {given: "/nowhere/file.tgz", says: "/nowhere/file.tgz, which is not there"},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newEngineRig(t)
			if tt.python == "-" {
				os.Remove(filepath.Join(rig.bin, "python3"))
			} else if tt.python != "" {
				rig.script(t, "python3", tt.python)
			}
			if tt.npm != "" {
				rig.script(t, "npm", tt.npm)
			}
			t.Setenv("KVSTORED_LLAMA", tt.given)
			code, out, says := daemon.Run(t, "", append([]string{"demo", "--engine", "--dir", rig.work}, tt.args...)...)
			if want := max(tt.code, daemon.ExitFailure); code != want || out != "" || !strings.Contains(says, tt.says) || strings.Contains(says, "Traceback") {
				t.Errorf("exit code %d, %q, %q; want %d and %q", code, out, says, want, tt.says)
			}
			if tt.npm != "" && !strings.Contains(says, "@node-llama-cpp/linux-x64@3.22.1") || strings.Contains(says, "starting") {
				t.Errorf("it says %q", says)
			}
			if left := rig.left(t); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// interrupt sends SIGINT when a line of standard error contains what, and checks
// that everything is gone when the process has ended.
func interrupt(t *testing.T, rig engineRig, what string, args ...string) {
	t.Helper()
	cmd := exec.Command(daemon.Program(t), append([]string{"demo", "--engine", "--dir", rig.work}, args...)...)
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	var says bytes.Buffer
	part, sent := make([]byte, 4096), false
	for {
		n, err := errs.Read(part)
		says.Write(part[:n])
		if !sent && strings.Contains(says.String(), what) {
			sent = true
			if what == "fetching" {
				waitForFile(t, filepath.Join(rig.bin, "pid"))
			}
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
		}
		if err != nil {
			break
		}
	}
	err = cmd.Wait()
	if cmd.ProcessState.ExitCode() != daemon.ExitFailure || !strings.Contains(says.String(), "interrupted; everything was cleaned up") {
		t.Errorf("%v: %s", err, says.String())
	}
	if left := rig.left(t); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func waitForFile(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if b, err := os.ReadFile(path); err == nil && bytes.HasSuffix(b, []byte("\n")) {
			return
		}
	}
	t.Errorf("there is no %s", path)
}

// TestEngineEnds: an engine that ends is told with what it said last, and how.
func TestEngineEnds(t *testing.T) {
	for script, says := range map[string][]string{
		"echo there is no room >&2; exit 7": {"there is no room", "exit status 7"},
		"kill -9 $$":                        {"signal: killed"},
	} {
		rig := newEngineRig(t)
		rig.script(t, "python3", script)
		_, _, errs := daemon.Run(t, "", "demo", "--engine", "--dir", rig.work)
		for _, what := range says {
			if !strings.Contains(errs, what) {
				t.Errorf("%s: %s; want %q", script, errs, what)
			}
		}
		if left := rig.left(t); len(left) > 0 {
			t.Errorf("%s: left behind: %q", script, left)
		}
	}
}

// TestEngineInterrupted: Ctrl-C while npm fetches ends npm too.
func TestEngineInterrupted(t *testing.T) {
	rig := newEngineRig(t)
	rig.script(t, "npm", fmt.Sprintf("echo $$ >%s/pid; exec /bin/sleep 1000", rig.bin))
	interrupt(t, rig, "fetching", "--yes")
	b, err := os.ReadFile(filepath.Join(rig.bin, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("npm still runs: %s", stat)
	}
}

// TestEngineDemo plays a small demo with llama.cpp itself, and interrupts another.
// Tests fetch nothing, except in CI.
func TestEngineDemo(t *testing.T) {
	path, given, cache := os.Getenv("PATH"), os.Getenv("KVSTORED_LLAMA"), os.Getenv("XDG_CACHE_HOME")
	rig := newEngineRig(t)
	t.Setenv("PATH", path)
	t.Setenv("KVSTORED_LLAMA", given)
	t.Setenv("XDG_CACHE_HOME", cache)
	here, err := exec.Command(filepath.Join(rig.bin, "python3"), filepath.Join(daemon.Root(), "cmd/kvstored/llamacpp/library.py")).Output()
	if os.Getenv("CI") != "true" && (err != nil || !strings.Contains(string(here), `"here": true`)) {
		t.Skipf("the library is not here (%v); go run ./cmd/kvstored demo --engine fetches it", err)
	}
	code, out, errs := daemon.Run(t, "", "demo", "--engine", "--yes", "--users", "2", "--turns", "2", "--json", "--dir", rig.work)
	var r struct {
		Engine  string `json:"engine"`
		Prompts []struct {
			Tokens   int
			Restored map[string]int `json:"restored_tokens"`
		}
		Disk      map[string]int64 `json:"bytes_loaded_from_disk"`
		Compared  int              `json:"answers_compared"`
		Different int              `json:"answers_different"`
	}
	if err := json.Unmarshal([]byte(out), &r); code != daemon.ExitOK || err != nil {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, errs)
	}
	if r.Compared != 7 || r.Different != 0 || r.Disk["from_disk"] == 0 || r.Disk["from_dram"] != 0 || !strings.Contains(r.Engine, "llama.cpp") || len(r.Prompts) != 4 {
		t.Errorf("%+v", r)
	}
	for i, p := range r.Prompts[1:] {
		if got := p.Restored; got["computed"] != 0 || got["from_disk"] < 2048 || got["from_dram"] != got["from_disk"] {
			t.Errorf("prompt %d: of %d tokens are restored %v", i+1, p.Tokens, got)
		}
	}
	interrupt(t, rig, "people ask")
}
