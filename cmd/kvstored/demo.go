package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/replay"
	"github.com/kvstored/kvstored/key"
)

// What the demo runs on: DRAM is too small for the conversations, so that the
// disk has work, and both fit on a small machine.
const (
	demoDRAM         = 256 << 20
	demoDisk         = 2 << 30
	demoSegment      = 128 << 20
	demoChunkTokens  = 256
	demoPayload      = 768 << 10
	demoSystemTokens = 1024
)

// demo is one run of the demo.
type demo struct {
	chat         replay.Chat
	dir          string
	report       string
	asJSON       bool
	prefillSpeed float64 // tokens an engine computes per second

	out, progress io.Writer
	series        *series
	result        demoResult
}

// demoResult is what demo --json prints.
type demoResult struct {
	Users        int           `json:"users"`
	Turns        int           `json:"turns"`
	SystemTokens int           `json:"system_prompt_tokens"`
	ChunkTokens  int           `json:"chunk_tokens"`
	PayloadBytes int           `json:"payload_bytes"`
	DRAMBytes    int64         `json:"dram_bytes"`
	Seconds      float64       `json:"seconds"`
	Total        replay.Result `json:"total"`
	Before       replay.Result `json:"before_restart"`
	After        replay.Result `json:"after_restart"`
	Restart      demoRestart   `json:"restart"`
	Saved        demoSaved     `json:"saved"`
}

// demoRestart is what stopping and starting the daemon took and brought.
type demoRestart struct {
	StopSeconds  float64 `json:"stop_seconds"` // with everything unwritten written
	StartSeconds float64 `json:"start_seconds"`
	ChunksBack   int64   `json:"chunks_back"` // known again, from disk alone
	BytesBack    int64   `json:"bytes_back"`
}

// demoSaved is what the hits were worth, at an assumed speed.
type demoSaved struct {
	Tokens                 int64   `json:"tokens"`
	PrefillTokensPerSecond float64 `json:"assumed_prefill_tokens_per_second"`
	PrefillSeconds         float64 `json:"prefill_seconds"`
	WaitedSeconds          float64 `json:"waited_seconds"` // for prefixes to be ready
}

func demoCommand() *cobra.Command {
	var d demo
	dir := ""
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it work: a daemon of its own, people who chat, a restart",
		Long: `Start a daemon in a temporary folder, play the prompts of people who chat with
one assistant, as an engine would, and verify every byte that comes back. In the
middle the daemon is restarted, to show what the disk tier brings back. What was
hit where, how fast, and what that saved is printed at the end. Nothing is left
behind.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.chat.Users < 1 || d.chat.Turns < 1 || d.prefillSpeed <= 0 {
				return usage(errors.New("--users, --turns and --prefill-tokens-per-second must be positive"))
			}
			d.out, d.progress = cmd.OutOrStdout(), cmd.ErrOrStderr()
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			var err error
			if d.dir, err = os.MkdirTemp(dir, "kvstored-demo-"); err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			defer os.RemoveAll(d.dir)
			return d.run(ctx)
		},
	}
	f := cmd.Flags()
	f.IntVar(&d.chat.Users, "users", 64, "people who chat")
	f.IntVar(&d.chat.Turns, "turns", 10, "prompts of each of them")
	f.Uint64Var(&d.chat.Seed, "seed", 1, "of what they say")
	f.Float64Var(&d.prefillSpeed, "prefill-tokens-per-second", 8000, "speed at which the engine is assumed to compute prompts")
	f.StringVar(&d.report, "report", "", "also write a page with charts to this file")
	f.StringVar(&dir, "dir", "", "where to make the temporary folder, if not in the usual place")
	jsonFlag(cmd, &d.asJSON)
	return cmd
}

func (d *demo) run(ctx context.Context) error {
	if err := canReport(d.report); err != nil {
		return err
	}
	d.chat.SystemTokens = demoSystemTokens
	d.series = newSeries()
	d.result = demoResult{
		Users: d.chat.Users, Turns: d.chat.Turns, SystemTokens: demoSystemTokens,
		ChunkTokens: demoChunkTokens, PayloadBytes: demoPayload, DRAMBytes: demoDRAM,
	}
	d.say("%s people chat, %s each, with a shared system prompt of %s tokens.\n", comma(d.chat.Users), plural(d.chat.Turns, "turn"), comma(demoSystemTokens))
	d.say("A chunk is %d tokens with %s of KV. The daemon has %s of DRAM, and a disk tier in\n%s.\n\n", demoChunkTokens, size(demoPayload), size(int64(demoDRAM)), d.dir)
	start := time.Now()
	err := d.play(ctx)
	d.result.Seconds = time.Since(start).Seconds()
	if ctx.Err() != nil {
		return errors.New("interrupted; everything was cleaned up")
	}
	if err != nil {
		return err
	}
	return d.finish()
}

// say prints for people.
func (d *demo) say(format string, args ...any) {
	if !d.asJSON {
		fmt.Fprintf(d.out, format, args...)
	}
}

// play plays the first half, restarts the daemon and plays the second.
func (d *demo) play(ctx context.Context) error {
	daemon, err := newDemoDaemon(d.dir)
	if err != nil {
		return err
	}
	defer daemon.kill() // what it would still write is thrown away with the folder
	if _, err := daemon.start(ctx); err != nil {
		return err
	}
	next, stop := iter.Pull(d.chat.All())
	defer stop()
	turns := d.chat.Users * d.chat.Turns
	bar := newProgress(d.progress, "playing", turns)
	defer bar.end()
	p := demoPlay{demo: d, daemon: daemon, next: next, bar: bar, total: replay.NewTally()}

	if d.result.Before, err = p.half(ctx, beforeRestart, turns/2); err != nil {
		return err
	}
	if err := p.restart(ctx); err != nil {
		return err
	}
	if d.result.After, err = p.half(ctx, afterRestart, turns-turns/2); err != nil {
		return err
	}
	d.result.Total = p.total.Result(p.took)
	d.result.Total.Complete = true
	return daemon.stop(ctx)
}

// demoPlay is the playing part of a demo.
type demoPlay struct {
	*demo
	daemon *demoDaemon
	next   func() (replay.Turn, bool)
	bar    *progress
	total  *replay.Tally
	took   time.Duration // playing, without the restart
}

// half plays n turns over one connection.
func (p *demoPlay) half(ctx context.Context, phase phase, n int) (replay.Result, error) {
	space := key.Space{Model: "demo", World: 1, DType: "generated", ChunkTokens: demoChunkTokens, Method: key.SHA256}
	b, err := key.NewBuilder(space)
	if err != nil {
		return replay.Result{}, err
	}
	c, err := client.Dial(ctx, p.daemon.socket, client.Options{Name: "demo engine", Space: &space})
	if err != nil {
		return replay.Result{}, err
	}
	defer c.Close()
	player := replay.Player{Client: c, PayloadBytes: demoPayload, Policy: client.WaitComplete}
	tally := replay.NewTally()
	var chain key.Chain
	start := time.Now()
	for range n {
		turn, ok := p.next()
		if !ok {
			break
		}
		if err := b.Tokens(&chain, turn.Tokens, key.Options{}); err != nil {
			return replay.Result{}, err
		}
		o, err := player.Play(ctx, replay.Prompt{Client: client.Tokens(turn.Tokens), Chain: &chain, Tokens: len(turn.Tokens)})
		if err != nil {
			return replay.Result{}, fmt.Errorf("user %d, turn %d: %w", turn.User, turn.Number, err)
		}
		tally.Add(&o)
		p.total.Add(&o)
		p.series.add(&o, turn.Number, phase)
		p.bar.step(func() string { return fmt.Sprintf("turn %d of user %d", turn.Number+1, turn.User+1) })
	}
	took := time.Since(start)
	p.took += took
	r := tally.Result(took)
	r.Complete = true
	return r, nil
}

// restart ends the daemon as an operator would and starts it again. All that
// it knows then comes from disk.
func (p *demoPlay) restart(ctx context.Context) error {
	r := &p.result.Restart
	start := time.Now()
	if err := p.daemon.stop(ctx); err != nil {
		return err
	}
	r.StopSeconds = time.Since(start).Seconds()
	start = time.Now()
	st, err := p.daemon.start(ctx)
	if err != nil {
		return err
	}
	r.StartSeconds = time.Since(start).Seconds()
	disk := st.Store.Tiers["disk"]
	r.ChunksBack, r.BytesBack = disk.Entries, disk.PayloadBytes
	return nil
}

// finish adds up, prints and reports.
func (d *demo) finish() error {
	r := &d.result
	r.Saved = demoSaved{
		Tokens: r.Total.TotalHitTokens, PrefillTokensPerSecond: d.prefillSpeed,
		PrefillSeconds: float64(r.Total.TotalHitTokens) / d.prefillSpeed,
		WaitedSeconds:  d.series.waited().Seconds(),
	}
	if d.report != "" {
		if err := writeReport(d.report, demoReport(r, d.series)); err != nil {
			return err
		}
	}
	if d.asJSON {
		if err := printJSON(d.out, r); err != nil {
			return err
		}
	} else {
		d.print()
	}
	if !r.Total.OK() {
		return fmt.Errorf("wrong bytes in %s", plural(r.Total.Mismatches+int(r.Total.DiffersBlocks), "chunk"))
	}
	return nil
}

func (d *demo) print() {
	r, w := &d.result, d.out
	printHits(w, &r.Total)
	fmt.Fprintln(w)
	var l list
	verdict := "every byte right"
	if !r.Total.OK() {
		verdict = "WRONG BYTES"
	}
	l.row("verified", "%s, %s", size(r.Total.BytesRead), verdict)
	l.row("stored", "%s in %s", size(r.Total.BytesWritten), plural(r.Total.StoredBlocks, "chunk"))
	l.row("speed", "%s, one client; making and checking the bytes included", rate(r.Total.GBPerSecond))
	l.row("lookup", "p50 %s, p99 %s", micros(r.Total.LookupP50), micros(r.Total.LookupP99))
	l.row("prefix ready", "p50 %s, p99 %s", micros(r.Total.ReadyP50), micros(r.Total.ReadyP99))
	l.row("restart", "%s to stop, %s to start; %s (%s) back from disk", seconds(r.Restart.StopSeconds), seconds(r.Restart.StartSeconds),
		plural(r.Restart.ChunksBack, "chunk"), size(r.Restart.BytesBack))
	before, after := d.series.around(restartWindow)
	l.row("", "the %d prompts before it hit %s, the %d after it %s", before.n, percent(before.hit(), before.all()), after.n, percent(after.hit(), after.all()))
	l.row("saved", "%s tokens not computed: %s of prefill at %s tokens/s", comma(r.Saved.Tokens), seconds(r.Saved.PrefillSeconds), comma(r.Saved.PrefillTokensPerSecond))
	l.row("", "(an assumption: --prefill-tokens-per-second), for %s of waiting", seconds(r.Saved.WaitedSeconds))
	l.print(w, "")
	if d.report != "" {
		fmt.Fprintf(w, "\nreport: %s\n", d.report)
	}
}

func seconds(s float64) string { return span(time.Duration(s * float64(time.Second))) }
