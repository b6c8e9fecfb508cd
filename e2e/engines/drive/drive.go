// Package drive runs engines with tests of their own: e2e/NAME/install.py brings the
// engine NAME, and its engine/drive.py is a process that reads lines of JSON and answers each.
package drive

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
)

// Patience is for one answer of an engine on a busy machine.
const Patience = 5 * time.Minute

const lineBytes = 1 << 20

// Object is a JSON object.
type Object = map[string]any

// Engine is one that e2e/NAME/install.py brings.
type Engine struct {
	name        string
	interpreter func() (string, error)
	models      func() (string, error)
}

// New names an engine. Nothing is looked for yet.
func New(name string) *Engine {
	e := &Engine{name: name}
	e.interpreter = sync.OnceValues(func() (string, error) {
		out, err := exec.Command("python3", e.path("install.py"), "where").Output()
		return strings.TrimSpace(string(out)), err
	})
	e.models = sync.OnceValues(func() (string, error) {
		python, err := e.interpreter()
		if err != nil {
			return "", err
		}
		dir := filepath.Join(filepath.Dir(filepath.Dir(python)), "models")
		out, err := exec.Command(python, filepath.Join(daemon.Root(), "e2e", "engines", "models.py"), dir).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
		return dir, nil
	})
	return e
}

func (e *Engine) path(parts ...string) string {
	return filepath.Join(append([]string{daemon.Root(), "e2e", e.name}, parts...)...)
}

// Python is the interpreter that has the engine; without one the test is skipped, or fails in CI.
func (e *Engine) Python(t *testing.T) string {
	t.Helper()
	path, err := e.interpreter()
	if err != nil {
		need.Missing(t, "%s: %v: python3 e2e/%s/install.py brings it", e.name, err, e.name)
	}
	return path
}

// Model is the folder of one of e2e/engines/models.py.
func (e *Engine) Model(t *testing.T, name string) string {
	t.Helper()
	dir, err := e.models()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// Environment is of processes that import the engine and kvstored: nothing is asked of a network.
func (e *Engine) Environment(socket string, more ...string) []string {
	path := strings.Join([]string{filepath.Join(daemon.Root(), "clients", "python", "src"), e.path("engine"), filepath.Join(daemon.Root(), "e2e", "engines")}, ":")
	return append(os.Environ(), append([]string{
		"HF_HUB_OFFLINE=1", "OMP_NUM_THREADS=1", "PYTHONPATH=" + path, "PYTHONDONTWRITEBYTECODE=1", "KVSTORED_SOCKET=" + socket,
	}, more...)...)
}

// Process is a process of engine/drive.py.
type Process struct {
	t       *testing.T
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan []byte
	log     string
}

// Start starts an engine with its options, the first line, and waits until it serves.
func (e *Engine) Start(t *testing.T, env []string, options any) *Process {
	t.Helper()
	interpreter := e.Python(t)
	log, err := os.CreateTemp(t.TempDir(), "engine-*.log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p := &Process{t: t, cmd: exec.Command(interpreter, e.path("engine", "drive.py")), answers: make(chan []byte), log: log.Name()}
	p.cmd.Env, p.cmd.Stderr = env, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in = in
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process
		defer close(p.answers)
		for lines := bufio.NewReaderSize(out, lineBytes); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			p.answers <- line
		}
	}()
	t.Cleanup(p.Stop)
	p.Ask(options, nil)
	return p
}

// Stop ends the engine as a user would.
func (p *Process) Stop() {
	if p.cmd.ProcessState != nil {
		return
	}
	p.in.Close()
	killer := time.AfterFunc(Patience, func() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) })
	defer killer.Stop()
	for range p.answers {
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("the engine ended: %v\n%s", err, p.Said(4000))
	}
}

// PID is that of the engine.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Said is the end of what the engine has said.
func (p *Process) Said(n int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-n):])
}

// Ask sends a line and decodes the answer to it.
func (p *Process) Ask(line, answer any) {
	p.t.Helper()
	text, err := json.Marshal(line)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.in.Write(append(text, '\n')); err != nil {
		p.t.Fatalf("%v\n%s", err, p.Said(8000))
	}
	select {
	case line, open := <-p.answers:
		if !open {
			p.t.Fatalf("the engine has ended\n%s", p.Said(8000))
		}
		if answer == nil {
			return
		}
		if err := json.NewDecoder(bytes.NewReader(line)).Decode(answer); err != nil {
			p.t.Fatalf("%s: %v", line, err)
		}
	case <-time.After(Patience):
		_ = p.cmd.Process.Signal(syscall.SIGABRT) // Python says where it hangs
		p.t.Fatalf("the engine does not answer\n%s", p.Said(8000))
	}
}

// Answer is what an engine made of a prompt.
type Answer struct {
	IDs      []int    `json:"ids"`
	Logprobs []string `json:"logprobs"`
}

// Equal compares answers; bits compares their log-probabilities too.
func Equal(t *testing.T, what string, got, want []Answer, bits bool) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d answers, want %d", what, len(got), len(want))
	}
	for i := range got {
		if g, w := fmt.Sprint(got[i].IDs), fmt.Sprint(want[i].IDs); g != w {
			t.Errorf("%s: prompt %d has the tokens %s, want %s", what, i, g, w)
		}
		if g, w := fmt.Sprint(got[i].Logprobs), fmt.Sprint(want[i].Logprobs); bits && g != w {
			t.Errorf("%s: prompt %d has other log-probabilities: %s, want %s", what, i, g, w)
		}
	}
}

// Near compares answers of which the tokens must be equal and log-probabilities at most so
// far off: sums of other batches have other last bits.
func Near(t *testing.T, what string, got, want []Answer, off float64) {
	t.Helper()
	Equal(t, what, got, want, false)
	for i := range got {
		if len(got[i].Logprobs) != len(want[i].Logprobs) {
			t.Fatalf("%s: prompt %d has %d log-probabilities, want %d", what, i, len(got[i].Logprobs), len(want[i].Logprobs))
		}
		for j := range got[i].Logprobs {
			g, err1 := strconv.ParseFloat(got[i].Logprobs[j], 64)
			w, err2 := strconv.ParseFloat(want[i].Logprobs[j], 64)
			if err1 != nil || err2 != nil || math.Abs(g-w) > off {
				t.Errorf("%s: prompt %d has the log-probability %v, want %v", what, i, g, w)
			}
		}
	}
}

// Tokens is a random prompt of n tokens.
func Tokens(r *rand.Rand, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = 4 + r.IntN(2044)
	}
	return out
}

// Random are prompts of n tokens each.
func Random(r *rand.Rand, prompts, n int) (out [][]int) {
	for range prompts {
		out = append(out, Tokens(r, n))
	}
	return out
}
