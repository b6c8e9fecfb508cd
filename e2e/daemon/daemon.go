package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
)

const (
	// patience is how long a process may take to start or to end on a busy machine.
	patience  = 2 * time.Minute
	startPoll = 10 * time.Millisecond
)

// Daemon is a folder with a configuration, and the process that serves from it.
type Daemon struct {
	Dir     string // all of it
	Socket  string
	Config  string // the file
	Disk    string // the disk folder
	Log     string // what all its processes said
	Program string // "": Program
	Env     []string
	Under   []string // what runs the program, with its path and arguments behind these; nil: nothing

	t     testing.TB
	cmd   *exec.Cmd  // nil unless it runs
	ended chan error // how it ended
}

// Folder makes the folder of a daemon with 64 MiB of DRAM and 1 GiB of disk, as changed.
// Nothing runs.
func Folder(t testing.TB, changes ...func(*config.Config)) *Daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "kvstored-e2e-") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{
		Dir: dir, Socket: filepath.Join(dir, "kvstored.sock"), Config: filepath.Join(dir, "kvstored.yaml"),
		Disk: filepath.Join(dir, "disk"), Log: filepath.Join(dir, "kvstored.log"), t: t,
	}
	t.Cleanup(func() {
		d.Kill()
		if t.Failed() {
			t.Logf("log of %s:\n%s", d.Dir, d.lastWords(40))
		}
		os.RemoveAll(dir)
	})
	cfg := config.Default()
	cfg.Listen.Socket, cfg.Admin.Listen = d.Socket, ""
	cfg.CPU.Capacity, cfg.CPU.HugePages = 64<<20, config.HugePagesOff
	cfg.Disk.Paths, cfg.Disk.Capacity, cfg.Disk.MinFree = []string{d.Disk}, 1<<30, 0
	cfg.Log.Format = "console"
	if err := os.Mkdir(d.Disk, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		change(&cfg)
	}
	d.write(&cfg)
	return d
}

// Start makes a folder and starts its daemon.
func Start(t testing.TB, changes ...func(*config.Config)) *Daemon {
	t.Helper()
	d := Folder(t, changes...)
	d.Start()
	return d
}

// Configure changes the configuration, which counts from the next start or reload on.
func (d *Daemon) Configure(change func(*config.Config)) {
	d.t.Helper()
	cfg, err := config.Load(d.Config, nil, config.Rules{})
	if err != nil {
		d.t.Fatal(err)
	}
	change(&cfg)
	d.write(&cfg)
}

func (d *Daemon) write(cfg *config.Config) {
	d.t.Helper()
	var text bytes.Buffer
	if err := errors.Join(cfg.Print(&text), os.WriteFile(d.Config, text.Bytes(), 0o600)); err != nil {
		d.t.Fatal(err)
	}
}

// Beside is another process of d's folder: a keeper, say.
func (d *Daemon) Beside() *Daemon {
	other := *d
	other.cmd, other.ended = nil, nil
	d.t.Cleanup(other.Kill)
	return &other
}

// Start runs the daemon and returns its statistics when it has all its DRAM, and knows
// everything that it has on disk.
func (d *Daemon) Start() *Stats {
	d.t.Helper()
	d.Launch()
	st, err := d.Ready(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return st
}

// Launch starts the process, with more arguments of serve, and does not wait.
func (d *Daemon) Launch(more ...string) {
	d.t.Helper()
	if err := d.Exec("serve", more...); err != nil {
		d.t.Fatal(err)
	}
}

// Exec starts a command that takes the configuration and runs until it is ended.
func (d *Daemon) Exec(command string, more ...string) error {
	program := d.Program
	if program == "" {
		program = Program(d.t)
	}
	log, err := os.OpenFile(d.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := slices.Concat(d.Under, []string{program, command, "--config", d.Config}, more)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = log
	cmd.Env = append(withoutOurs(os.Environ()), d.Env...)
	// An interrupt is for the test, which then ends the daemon; a test that is killed, or
	// panics, takes it along.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan error, 1)
	go func() { // ends with the process
		runtime.LockOSThread() // the kernel takes the thread that started it for its parent
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start the daemon: %w", err)
	}
	d.cmd, d.ended = cmd, ended
	return nil
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

// Ready waits until the daemon has all its DRAM, and knows everything that it has on disk.
func (d *Daemon) Ready(ctx context.Context) (*Stats, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("it took too long"))
	defer cancel()
	for {
		st, err := d.Ask(ctx)
		if err == nil && !st.Store.Recovering && st.Arena.PopulatedBytes == st.Arena.CapacityBytes {
			return st, nil
		}
		select {
		case ended := <-d.ended:
			d.cmd = nil
			return nil, d.failed(fmt.Errorf("the daemon did not start: %w", ended))
		case <-ctx.Done():
			return nil, d.failed(fmt.Errorf("the daemon did not start: %w; last: %w", context.Cause(ctx), err))
		case <-time.After(startPoll):
		}
	}
}

// Dial connects a client that is closed when the test ends.
func (d *Daemon) Dial(o client.Options) *client.Client {
	d.t.Helper()
	c, err := client.Dial(d.t.Context(), d.Socket, o)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { c.Close() })
	return c
}

// Running reports whether there is a process that nobody saw end.
func (d *Daemon) Running() bool { return d.cmd != nil }

// Process is the process that runs; it is nil where none does.
func (d *Daemon) Process() *os.Process {
	if d.cmd == nil {
		return nil
	}
	return d.cmd.Process
}

// Signal sends a signal to the process.
func (d *Daemon) Signal(s syscall.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.t.Fatal(d.failed(err))
	}
}

// Wait waits until the process has ended, and returns how it did.
func (d *Daemon) Wait() error {
	d.t.Helper()
	ended, err := d.Ended(patience)
	if !ended {
		d.t.Fatal(d.failed(errors.New("the daemon does not end")))
	}
	return err
}

// Ended reports whether the process ends within a time, and how.
func (d *Daemon) Ended(within time.Duration) (ended bool, err error) {
	select { // one that has ended has, however short the time
	case err := <-d.ended:
		d.cmd = nil
		return true, err
	default:
	}
	select {
	case err := <-d.ended:
		d.cmd = nil
		return true, err
	case <-time.After(within):
		return false, nil
	}
}

// StopWithin is a stop by SIGTERM that is to end within a time, and returns how it did.
// The log of a process that does not end says where it hangs.
func (d *Daemon) StopWithin(limit time.Duration) error {
	d.t.Helper()
	begun := time.Now()
	d.Signal(syscall.SIGTERM)
	ended, err := d.Ended(limit)
	if !ended {
		d.Signal(syscall.SIGQUIT)
		_ = d.Wait()
		d.t.Fatalf("the daemon did not end within %v; its log ends with:\n%s", limit, d.lastWords(200))
	}
	d.t.Logf("it ended after %v: %v", time.Since(begun).Round(time.Millisecond), err)
	return err
}

// Stop ends the daemon as an operator would, and waits until it has written every chunk.
func (d *Daemon) Stop() {
	d.t.Helper()
	if d.cmd == nil {
		return
	}
	d.Signal(syscall.SIGTERM)
	if err := d.Wait(); err != nil {
		d.t.Fatal(d.failed(fmt.Errorf("the daemon did not end well: %w", err)))
	}
}

// Kill ends the process at once, if it runs.
func (d *Daemon) Kill() {
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Kill() // fails only if it has ended
	_ = <-d.ended            // it was killed
	d.cmd = nil
}

// Said is the log of all processes so far.
func (d *Daemon) Said() string {
	d.t.Helper()
	text, err := os.ReadFile(d.Log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
	return string(text)
}

// AwaitSaid returns the log once a line of it matches each pattern: the line of a request
// may come after the answer to its client.
func (d *Daemon) AwaitSaid(patterns ...string) string {
	d.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(startPoll) {
		said := d.Said()
		patterns = slices.DeleteFunc(patterns, func(p string) bool { return regexp.MustCompile(p).MatchString(said) })
		if len(patterns) == 0 {
			return said
		}
		if time.Now().After(end) {
			d.t.Fatalf("no line %s in\n%s", strings.Join(patterns, ", nor "), said)
		}
	}
}

// Find returns what the group of a pattern has matched last in the log, once it has: an
// address that the kernel chose, say.
func (d *Daemon) Find(pattern string) string {
	d.t.Helper()
	find := regexp.MustCompile(pattern).FindAllStringSubmatch(d.AwaitSaid(pattern), -1)
	return find[len(find)-1][1]
}

// Flush waits until every chunk that the daemon has taken is on disk.
func (d *Daemon) Flush() {
	d.t.Helper()
	c, err := client.Dial(d.t.Context(), d.Socket, client.Options{Name: ours, Inline: true})
	if err != nil {
		d.t.Fatal(err)
	}
	defer c.Close()
	done, err := c.Flush(d.t.Context(), false)
	if err != nil {
		d.t.Fatal(err)
	}
	if len(done.Left) > 0 {
		d.t.Fatalf("the flush left %v", done.Left)
	}
}

// failed adds what the daemon said last to an error.
func (d *Daemon) failed(err error) error {
	if words := d.lastWords(10); words != "" {
		return fmt.Errorf("%w; its log ends with:\n%s", err, words)
	}
	return err
}

func (d *Daemon) lastWords(n int) string {
	text, _ := os.ReadFile(d.Log) // or there is none
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
