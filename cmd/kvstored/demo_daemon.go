package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/demo"
)

const (
	demoStartTimeout = 60 * time.Second // faulting in all of the DRAM tier on a busy machine
	demoStopTimeout  = 60 * time.Second
	demoStartPoll    = 10 * time.Millisecond
)

// demoDaemon is this very program, serving from the demo's folder in a process
// of its own.
type demoDaemon struct {
	socket, config, log string
	program             string    // "": this one
	cmd                 *exec.Cmd // nil unless it runs
	ended               chan error
	trouble             string // health at its last stop at which it was not ready
}

// inTrouble is an error where the daemon did not do all that a demo shows.
func (d *demoDaemon) inTrouble() error {
	if d.trouble == "" {
		return nil
	}
	return fmt.Errorf("demo: the daemon was %s; make room, or name another folder with --dir", d.trouble)
}

func newDemoDaemon(dir string) (*demoDaemon, error) {
	d := &demoDaemon{
		socket: filepath.Join(dir, "kvstored.sock"),
		config: filepath.Join(dir, "kvstored.yaml"),
		log:    filepath.Join(dir, "kvstored.log"),
	}
	cfg := config.Default()
	cfg.Listen.Socket = d.socket
	cfg.Admin.Listen = ""
	cfg.CPU.Capacity = demo.DRAMBytes
	cfg.Disk.Paths = []string{filepath.Join(dir, "disk")}
	cfg.Disk.Capacity, cfg.Disk.SegmentSize, cfg.Disk.MinFree = demo.DiskBytes, demo.SegmentBytes, 0
	cfg.Log.Format = "console"
	f, err := os.Create(d.config)
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	if err := errors.Join(os.Mkdir(cfg.Disk.Paths[0], 0o700), cfg.Print(f), f.Close()); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return d, nil
}

// start runs the daemon and returns its statistics once it has all its DRAM, and knows
// everything it has on disk.
func (d *demoDaemon) start(ctx context.Context) (*statsView, error) {
	if err := d.launch(); err != nil {
		return nil, err
	}
	return d.ready(ctx)
}

// launch starts the process, with more arguments of serve.
func (d *demoDaemon) launch(more ...string) error { return d.run("serve", more...) }

// run starts a command that takes the configuration and runs until it is ended.
func (d *demoDaemon) run(command string, more ...string) error {
	program := d.program
	if program == "" {
		var err error
		if program, err = os.Executable(); err != nil {
			return fmt.Errorf("demo: which program is this: %w", err)
		}
	}
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(program, append([]string{command, "--config", d.config}, more...)...)
	cmd.Stderr = log
	cmd.Env = withoutOurs(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the demo, which then ends the daemon
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("demo: start the daemon: %w", err)
	}
	d.cmd, d.ended = cmd, make(chan error, 1)
	go func() { d.ended <- cmd.Wait() }() // ends with the process
	return nil
}

// ready waits until the daemon has all its DRAM, and knows everything it has on disk.
func (d *demoDaemon) ready(ctx context.Context) (*statsView, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, demoStartTimeout, errors.New("it took too long"))
	defer cancel()
	for {
		st, err := d.stats(ctx)
		if err == nil && !strings.HasPrefix(st.Health, "not ready") {
			return st, nil
		}
		select {
		case err := <-d.ended:
			d.cmd = nil
			return nil, d.failed(fmt.Errorf("the daemon did not start: %w", err))
		case <-ctx.Done():
			return nil, d.failed(fmt.Errorf("the daemon did not start: %w", context.Cause(ctx)))
		case <-time.After(demoStartPoll):
		}
	}
}

// withoutOurs is env without the settings of another daemon.
func withoutOurs(env []string) (out []string) {
	for _, kv := range env {
		if !strings.HasPrefix(kv, "KVSTORED_") {
			out = append(out, kv)
		}
	}
	return out
}

func (d *demoDaemon) stats(ctx context.Context) (*statsView, error) {
	c, err := client.Dial(ctx, d.socket, client.Options{Name: "demo", Inline: true})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	raw, err := c.Stats(ctx)
	if err != nil {
		return nil, err
	}
	st := new(statsView)
	return st, json.Unmarshal(raw, st)
}

// stop ends the daemon as an operator would, and waits until it has written
// every chunk.
func (d *demoDaemon) stop(ctx context.Context) error {
	if d.cmd == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, demoStopTimeout, errors.New("it took too long"))
	defer cancel()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return d.failed(fmt.Errorf("stop the daemon: %w", err))
	}
	select {
	case err := <-d.ended:
		d.cmd = nil
		if err != nil {
			return d.failed(fmt.Errorf("the daemon did not end well: %w", err))
		}
		return nil
	case <-ctx.Done():
		return d.failed(fmt.Errorf("the daemon does not stop: %w", context.Cause(ctx)))
	}
}

// kill ends the daemon at once, if it runs.
func (d *demoDaemon) kill() {
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Kill() // fails only if it has ended
	_ = <-d.ended
	d.cmd = nil
}

// failed adds what the daemon said last to an error.
func (d *demoDaemon) failed(err error) error {
	log, rerr := os.ReadFile(d.log)
	if rerr != nil || len(log) == 0 {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return fmt.Errorf("%w; its log ends with:\n%s", err, strings.Join(lines[max(0, len(lines)-10):], "\n"))
}
