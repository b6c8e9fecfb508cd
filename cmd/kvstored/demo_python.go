package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	python "github.com/kvstored/kvstored/clients/python"
	"github.com/kvstored/kvstored/internal/demo"
)

// pythonEnd is how long a program of Python may take to clean up.
const pythonEnd = 5 * time.Second

// demoPython runs modules of this program's Python sources, which it wrote to a
// folder of the demo.
type demoPython struct {
	program, dir string
}

// newDemoPython looks for an interpreter that is new enough.
func newDemoPython(ctx context.Context, dir string) (*demoPython, error) {
	program, err := exec.LookPath("python3")
	if err != nil {
		return nil, errors.New("demo --engine: python3 is not in PATH: the engine runs in Python 3.9 or newer, without further packages; install it (apt install python3, dnf install python3), or see the demo without --engine")
	}
	out, err := exec.CommandContext(ctx, program, "-c", "import ctypes, sys; print(sys.version_info >= (3, 9), *sys.version_info[:2])").CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("demo --engine: %s does not work: %w: %s", program, err, lastLine(out))
	case !bytes.HasPrefix(out, []byte("True")):
		return nil, fmt.Errorf("demo --engine: %s is Python %s: the engine needs 3.9 or newer, as python3 in PATH", program, strings.Join(strings.Fields(string(out))[1:], "."))
	}
	if err := os.CopyFS(filepath.Join(dir, "python"), python.Files); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return &demoPython{program, dir}, nil
}

// command is a module that runs with its children in a process group of its own,
// which sig ends: Ctrl-C is for the demo.
func (p *demoPython) command(ctx context.Context, sig syscall.Signal, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.program, append([]string{"-B", "-s", "-m"}, args...)...)
	cmd.Env = append(withoutOurs(os.Environ()), "PYTHONPATH="+filepath.Join(p.dir, "python"), "TMPDIR="+p.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, sig) }
	cmd.WaitDelay = pythonEnd
	return cmd
}

// pinned is the library that an engine is made of, as module llamacpp.library
// names it.
type pinned struct {
	Package string `json:"package"`
	Release string `json:"release"`
	Bytes   int64  `json:"bytes"`
	SHA256  string `json:"sha256"`
	Path    string `json:"path"`
	Here    bool   `json:"here"` // the file is there; its sum is not checked yet
}

// library asks for the library, with "fetch" after it was fetched and its sum was
// found to be right.
func (p *demoPython) library(ctx context.Context, args ...string) (*pinned, error) {
	cmd := p.command(ctx, syscall.SIGINT, append([]string{"llamacpp.library"}, args...)...)
	if given := os.Getenv("KVSTORED_LLAMA"); given != "" {
		cmd.Env = append(cmd.Env, "KVSTORED_LLAMA="+given)
	}
	var says bytes.Buffer
	cmd.Stderr = &says
	out, err := cmd.Output()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // a child that an interrupt left
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("demo --engine: %s", lastLine(says.Bytes()))
	}
	pin := new(pinned)
	if err := json.Unmarshal(out, pin); err != nil {
		return nil, fmt.Errorf("demo --engine: %s said %q: %w", p.program, lastLine(out), err)
	}
	return pin, nil
}

// demoEngine is a running engine, the module llamacpp.chat.
type demoEngine struct {
	cmd       *exec.Cmd
	questions io.WriteCloser
	ask       *json.Encoder
	answers   *json.Decoder
	log       string // its standard error

	Library    string `json:"library"`
	ModelBytes int64  `json:"model_bytes"`
	Vocabulary int    `json:"vocabulary"`
}

// engine starts one, and returns when it is ready for questions.
func (p *demoPython) engine(ctx context.Context, pin *pinned, socket string, threads int) (*demoEngine, error) {
	e := &demoEngine{log: filepath.Join(p.dir, "engine.log")}
	log, err := os.Create(e.log)
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	defer log.Close()
	e.cmd = p.command(ctx, syscall.SIGKILL, "llamacpp.chat", "--folder", p.dir, "--socket", socket,
		"--context", strconv.Itoa(demo.ContextTokens), "--chunk", strconv.Itoa(demo.ChunkTokens), "--threads", strconv.Itoa(threads))
	e.cmd.Env = append(e.cmd.Env, "KVSTORED_LLAMA="+pin.Path, "XDG_CACHE_HOME="+p.dir)
	e.cmd.Stderr = log
	in, err := e.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	if err := e.cmd.Start(); err != nil {
		return nil, fmt.Errorf("demo: start the engine: %w", err)
	}
	e.questions, e.ask, e.answers = in, json.NewEncoder(in), json.NewDecoder(out)
	if err := e.answers.Decode(e); err != nil {
		defer e.close()
		return nil, e.failed(ctx, "the engine did not start", err)
	}
	return e, nil
}

// Ask is the [demo.Engine].
func (e *demoEngine) Ask(ctx context.Context, q demo.Question) (a demo.Answer, err error) {
	if err := e.ask.Encode(q); err != nil {
		return a, e.failed(ctx, "the engine ended", err)
	}
	if err := e.answers.Decode(&a); err != nil {
		return a, e.failed(ctx, "the engine ended", err)
	}
	return a, nil
}

// failed adds how the engine ended, and what it said last.
func (e *demoEngine) failed(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e.close()
	log, _ := os.ReadFile(e.log)
	return fmt.Errorf("demo --engine: %s: %w (%s): %s", what, err, e.cmd.ProcessState, lastLine(log))
}

// close ends the engine, if it runs. All that it has goes with it.
func (e *demoEngine) close() {
	if e.cmd.ProcessState != nil {
		return
	}
	_ = e.questions.Close()
	_ = e.cmd.Cancel() // fails only if it has ended
	_ = e.cmd.Wait()
}

// lastLine is what a program said last.
func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
