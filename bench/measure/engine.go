package measure

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Object is one of JSON.
type Object map[string]any

// EngineKit is an interpreter that e2e/NAME/install.py has given an engine, with the package of
// this checkout and small models beside it.
type EngineKit struct {
	Models string // a folder for each

	python, drive string
	path          []string
}

// InstallEngine installs what is missing.
func InstallEngine(ctx context.Context, name, work string) (*EngineKit, error) {
	module, err := Source(ctx, "")
	if err != nil {
		return nil, err
	}
	root := filepath.Dir(module)
	e2e, shared, site := filepath.Join(root, "e2e", name), filepath.Join(root, "e2e", "engines"), filepath.Join(work, "site")
	k := &EngineKit{Models: filepath.Join(work, "models"), drive: filepath.Join(e2e, "engine", "drive.py")}
	if k.python, err = output(ctx, "python3", filepath.Join(e2e, "install.py")); err != nil {
		return nil, err
	}
	if _, err := output(ctx, k.python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--target", site, filepath.Join(root, "clients", "python")); err != nil {
		return nil, err
	}
	_, err = output(ctx, k.python, filepath.Join(shared, "models.py"), k.Models)
	k.path = []string{site, filepath.Dir(k.drive), shared}
	return k, err
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "KVSTORED_WHEEL=client") // there is a daemon already
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Engine is a process of the kit's drive.py: it reads lines of JSON, the first with its
// options, and answers each.
type Engine struct {
	process *Process
	in      io.WriteCloser
	out     *bufio.Reader
}

// Launch starts an engine; Hear waits until it serves.
func (k *EngineKit) Launch(processes *Processes, env []string, log string, options Object) (e *Engine, err error) {
	e = &Engine{}
	cmd := exec.Command(k.python, k.drive)
	if e.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	e.out = bufio.NewReader(out)
	if e.process, err = processes.Launch(cmd, k.environment(env), log); err != nil {
		return nil, err
	}
	return e, e.say(options)
}

// Program starts a program of the engine's.
func (k *EngineKit) Program(processes *Processes, env []string, log, name string, args ...string) (*Process, error) {
	return processes.Launch(exec.Command(filepath.Join(filepath.Dir(k.python), name), args...), k.environment(env), log)
}

func (k *EngineKit) environment(env []string) []string {
	return append(env, "HF_HUB_OFFLINE=1", "OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+strings.Join(k.path, ":"))
}

func (e *Engine) say(line Object) error {
	text, err := json.Marshal(line)
	if err == nil {
		_, err = e.in.Write(append(text, '\n'))
	}
	return err
}

// Hear decodes the answer to what was said.
func (e *Engine) Hear(ctx context.Context, answer any) error {
	defer context.AfterFunc(ctx, e.process.End)()
	line, err := e.out.ReadBytes('\n')
	if err != nil {
		return e.process.Failed("has ended")
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(line, answer)
}

// Pause stops the engine's processes where they are, and Resume has them go on.
func (e *Engine) Pause() error { return e.process.signal(syscall.SIGSTOP) }

// Resume ends a pause.
func (e *Engine) Resume() error { return e.process.signal(syscall.SIGCONT) }

// Ask sends a line and decodes the answer to it.
func (e *Engine) Ask(ctx context.Context, line Object, answer any) error {
	if err := e.say(line); err != nil {
		return e.process.Failed(err.Error())
	}
	return e.Hear(ctx, answer)
}
