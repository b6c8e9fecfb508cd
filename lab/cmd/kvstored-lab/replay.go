package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/lab/replay"
)

// replayFlags are the command line of replay.
type replayFlags struct {
	trace, socket, config, payload   string
	blockTokens, limit, concurrency  int
	saveUnfull, waitComplete, asJSON bool
	timestamps, flat, quiet          bool
	speed                            float64
	timeUnit                         string
	deadline                         time.Duration
	simulate                         simulateFlags
}

func replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay --trace FILE",
		Short: "Play a trace against a running daemon, or simulate what a cache would keep of it",
		Long: `Play a trace against a running daemon as an inference engine would: for each
request ask for its prefix, wait for what is ready of it, compare every byte of
that with what it must be, and store the blocks that are missing.

A trace has one JSON object a line, as published with Mooncake: "timestamp",
"input_length", "output_length", and "hash_ids" with one id for each block of
--block-size tokens, with or without one for a partial block at the end; or a session of an agent, with "requests" of "t", "in",
"out" and "hash_ids", which lab/README.md describes. Requests are played as
fast as possible, or with --honor-timestamps when their time has come, if a
client is free then: give enough of them with --concurrency. Files packed by gzip,
Zstandard or bzip2 are unpacked.

The exit code is 1 if a single byte was wrong.

With --simulate no daemon is needed and no byte moved: it counts what a cache of
each policy and capacity would have hit, which tells how large a cache to buy.`,
		Example: `  kvstored-lab replay --trace conversation_trace.jsonl --payload-bytes 64KiB --save-unfull
  kvstored-lab replay --simulate --trace conversation_trace.jsonl --policy lru,s3fifo,belady --capacity-blocks 1000,10000
  kvstored-lab replay --simulate --trace conversation_trace.jsonl --bytes-per-block 64MiB
  kvstored-lab replay --simulate --trace conversation_trace.jsonl --groups gpt-oss-120b --policy lru --capacity-blocks 5859
  kvstored-lab replay --simulate --trace conversation_trace.jsonl --policy lru --capacity-blocks 10000 --disk-blocks 16384,32768 --disk-policy all --write-mode all`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneMode(cmd, f.simulate.on); err != nil {
				return err
			}
			switch {
			case f.flat:
				return f.flatten(cmd.OutOrStdout())
			case f.simulate.on && f.simulate.groups != "":
				return f.runGroups(cmd)
			case f.simulate.on && len(f.simulate.disk.blocks) > 0:
				return f.runTiers(cmd)
			case f.simulate.on:
				return f.runSimulate(cmd)
			}
			return f.run(cmd)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.trace, "trace", "", "trace to play")
	fl.StringVar(&f.timeUnit, "time-unit", "ms", "of times in the trace: seconds, ms or ns")
	fl.IntVar(&f.blockTokens, "block-size", 512, "tokens in a block of the trace")
	fl.StringVar(&f.payload, "payload-bytes", "64KiB", "size of every payload; with --groups of those of the full groups together, and others in proportion")
	fl.IntVar(&f.limit, "limit", 0, "play only so many requests; 0 = all")
	fl.IntVar(&f.concurrency, "concurrency", 1, "clients that play at the same time")
	fl.BoolVar(&f.saveUnfull, "save-unfull", false, "store the last, partial block of a prompt too, which engines do not")
	fl.BoolVar(&f.waitComplete, "wait-complete", false, "always wait for the disk: until all that is stored is ready, and until what was stored is written")
	fl.BoolVar(&f.timestamps, "honor-timestamps", false, "start requests when their timestamps say")
	fl.Float64Var(&f.speed, "speed", 1, "with --honor-timestamps: so many times as fast as the trace")
	fl.DurationVar(&f.deadline, "deadline", 0, "answer each request by then, with what is ready, and count those that are late; 0 = as the daemon is configured")
	fl.StringVar(&f.config, "config", "", "the daemon's configuration file, to find its socket in")
	socketFlag(cmd, &f.socket)
	jsonFlag(cmd, &f.asJSON)
	f.simulate.define(fl)
	fl.BoolVar(&f.quiet, "quiet", false, "show no progress")
	fl.BoolVar(&f.flat, "flatten", false, "play nothing, and print the requests as lines of Mooncake's form, sessions in the order of time")
	cmd.MarkFlagsMutuallyExclusive("socket", "config")
	cmd.MarkFlagsMutuallyExclusive("flatten", "simulate")
	if err := cmd.MarkFlagRequired("trace"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func (f *replayFlags) run(cmd *cobra.Command) error {
	if f.simulate.perRequest && !f.asJSON {
		return usage(errPerRequest)
	}
	o, err := f.options()
	if err != nil {
		return err
	}
	summary, err := f.summarize()
	if err != nil {
		return err
	}
	if err := f.checkTimes(cmd.ErrOrStderr(), summary); err != nil {
		return err
	}
	trace, err := replay.Open(f.trace)
	if err != nil {
		return err
	}
	defer trace.Close()
	o.Trace = trace
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	progress := cmd.ErrOrStderr()
	if f.quiet {
		progress = io.Discard
	}
	bar := human.NewProgress(progress, filepath.Base(f.trace), summary.Requests)
	tokens, hits, wrong := int64(0), int64(0), 0
	o.Observe = func(out *replay.Outcome) {
		tokens += int64(out.Tokens)
		hits += int64(out.Hit.Tokens)
		wrong += len(out.Mismatches)
		bar.Step(func() string {
			return fmt.Sprintf("%s hit, %d wrong", human.Percent(float64(hits), float64(tokens)), wrong)
		})
	}
	r, err := replay.Run(ctx, o)
	bar.End()
	if perr := f.print(cmd.OutOrStdout(), &o, &r, summary.Span); perr != nil {
		return perr
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted after %s of %s requests", human.Count(r.Requests), human.Count(summary.Requests))
	case err != nil:
		return err
	case !r.OK():
		return fmt.Errorf("wrong bytes: %s differ from what was stored under their key", human.Plural(r.Mismatches+int(r.DiffersBlocks), "chunk"))
	}
	return nil
}

func (f *replayFlags) options() (replay.Options, error) {
	payload, err := config.ParseBytes(f.payload)
	switch {
	case err != nil:
		return replay.Options{}, usage(fmt.Errorf("--payload-bytes: %w", err))
	case payload < 1 || payload > 64<<20:
		return replay.Options{}, usage(fmt.Errorf("--payload-bytes %s: use 1 to 64MiB", f.payload))
	case f.blockTokens < 1 || f.concurrency < 1 || f.limit < 0:
		return replay.Options{}, usage(errors.New("--block-size and --concurrency must be at least 1, --limit at least 0"))
	}
	if f.config != "" {
		cfg, err := config.Load(f.config, os.Environ(), config.Rules{})
		if err != nil {
			return replay.Options{}, err
		}
		f.socket = cfg.Listen.Socket
	}
	o := replay.Options{
		Name: f.trace, Socket: f.socket, Concurrency: f.concurrency, BlockTokens: f.blockTokens,
		PayloadBytes: int(payload), Limit: f.limit, SaveUnfull: f.saveUnfull, PerRequest: f.simulate.perRequest,
	}
	if o.Groups, err = f.liveGroups(int64(payload)); err != nil {
		return replay.Options{}, err
	}
	if f.waitComplete {
		o.Policy = client.WaitComplete
	}
	if f.speed <= 0 {
		return replay.Options{}, usage(fmt.Errorf("--speed %v: use a number above 0", f.speed))
	}
	if f.timestamps {
		o.Speed = f.speed
	}
	if o.Deadline = f.deadline; o.Deadline < 0 {
		return replay.Options{}, usage(fmt.Errorf("--deadline %v: use a time above 0", f.deadline))
	}
	return o, nil
}

// summarize reads the whole trace, so that a bad line is known before minutes
// have been spent on those before it.
func (f *replayFlags) summarize() (replay.Summary, error) {
	trace, err := replay.Open(f.trace)
	if err != nil {
		return replay.Summary{}, err
	}
	defer trace.Close()
	form, err := f.form()
	if err != nil {
		return replay.Summary{}, err
	}
	return replay.Summarize(trace, f.trace, form, f.limit)
}

// form is what the numbers of the trace mean.
func (f *replayFlags) form() (form replay.Form, err error) {
	unit, known := map[string]time.Duration{"seconds": time.Second, "ms": time.Millisecond, "ns": time.Nanosecond}[f.timeUnit]
	if !known {
		return form, usage(fmt.Errorf("--time-unit %q: use seconds, ms or ns", f.timeUnit))
	}
	return replay.Form{BlockTokens: f.blockTokens, Unit: unit}, nil
}

// checkTimes refuses to wait for times that a trace does not have, and says which lines are
// not in their order.
func (f *replayFlags) checkTimes(warn io.Writer, s replay.Summary) error {
	if f.timestamps && s.Untimed > 0 {
		return usage(fmt.Errorf("--honor-timestamps: %s of the trace without a time", human.Plural(s.Untimed, "request")))
	}
	if s.Late > 0 {
		fmt.Fprintf(warn, "%s before one of an earlier line; they are played in the order of the lines\n", human.Plural(s.Late, "request"))
	}
	return nil
}

func (f *replayFlags) print(w io.Writer, o *replay.Options, r *replay.Result, lasts time.Duration) error {
	if r.Requests == 0 {
		return nil // the error says all there is to say
	}
	if f.asJSON {
		return printJSON(w, r)
	}
	printReplay(w, o, r, lasts)
	return nil
}

func printReplay(w io.Writer, o *replay.Options, r *replay.Result, lasts time.Duration) {
	fmt.Fprintf(w, "%s, over %s: %s in %s, %s\n\n", filepath.Base(o.Name), human.Duration(lasts), human.Plural(r.Requests, "request"),
		human.Duration(time.Duration(r.Seconds*float64(time.Second))), human.Plural(o.Concurrency, "client"))
	printHits(w, r)
	fmt.Fprintln(w)
	var l human.List
	verdict := "every byte right"
	if !r.OK() {
		verdict = fmt.Sprintf("WRONG BYTES in %s, other bytes already there for %s",
			human.Plural(r.Mismatches, "chunk"), human.Plural(r.DiffersBlocks, "chunk"))
	}
	l.Row("verified", "%s, %s", human.Bytes(r.BytesRead), verdict)
	l.Row("stored", "%s in %s", human.Bytes(r.BytesWritten), human.Plural(r.StoredBlocks, "chunk"))
	l.Row("moved", "%s", human.Rate(r.GBPerSecond))
	l.Row("lookup", "p50 %s, p99 %s", human.Micros(r.LookupP50), human.Micros(r.LookupP99))
	l.Row("prefix ready", "p50 %s, p99 %s", human.Micros(r.ReadyP50), human.Micros(r.ReadyP99))
	printReady(&l, "  nothing found", r.ReadyBy["none"])
	for i, name := range replay.TierNames {
		printReady(&l, "  from "+replay.TierTitles[i], r.ReadyBy[name]) // at least in part
	}
	if o.Deadline > 0 {
		l.Row("late", "%s answered after the deadline of %v", human.Plural(r.LateRequests, "request"), o.Deadline)
	}
	if o.Speed > 0 {
		l.Row("started", "p50 %s, p99 %s behind their time", human.Micros(r.Behind.P50), human.Micros(r.Behind.P99))
	}
	for _, e := range []struct {
		name string
		n    int64
		what string
	}{
		{"shorter", int64(r.ShortRequests), "prefixes than matched at lookup"},
		{"revoked", int64(r.RevokedRequests), "leases, whose hits do not count"},
		{"refused", r.RefusedBlocks, "chunks without room"},
		{"pending", r.PendingBlocks, "chunks left to another client that was storing them"},
	} {
		if e.n > 0 {
			l.Row(e.name, "%s %s", human.Count(e.n), e.what)
		}
	}
	if r.NeededBytes > 0 {
		l.Row("needed", "%s by what was matched, %s of them below DRAM", human.Bytes(r.NeededBytes), human.Bytes(r.NeededBelow))
	}
	if d := r.Daemon; d != nil {
		if r.NeededBytes > 0 {
			l.Row("loaded", "%s from below DRAM", human.Bytes(d.LoadedBytes))
		}
		l.Row("daemon", "%s", daemonVerdict(r))
	}
	l.Print(w, "")
	for _, m := range r.Wrong {
		fmt.Fprintf(w, "wrong: %s at byte %s, from %s\n", m.Key, human.Count(m.Offset), m.Tier)
	}
}

// printHits is the table of where the tokens came from.
// printReady prints how long requests of one kind took until their prefix could
// be read.
func printReady(l *human.List, title string, d replay.Spread) {
	if d.Requests > 0 {
		l.Row(title, "p50 %s, p90 %s, p99 %s, longest %s, of %s", human.Micros(d.P50), human.Micros(d.P90), human.Micros(d.P99), human.Micros(d.Max), human.Plural(d.Requests, "request"))
	}
}

func printHits(w io.Writer, r *replay.Result) {
	var t human.Table
	t.Row("", "tokens", "share", "chunks")
	whole := float64(r.TotalPromptTokens)
	for i, name := range replay.TierNames {
		if n := r.HitTokens[name]; n > 0 || i < 2 {
			t.Row("from "+replay.TierTitles[i], human.Count(n), human.Percent(float64(n), whole), human.Count(r.HitBlocks[name]))
		}
	}
	t.Row("computed", human.Count(r.TotalPromptTokens-r.TotalHitTokens), human.Percent(whole-float64(r.TotalHitTokens), whole), human.Count(r.BlockAccesses-r.BlockHits))
	t.Row("prompts", human.Count(r.TotalPromptTokens), "", human.Count(r.BlockAccesses))
	t.Print(w, "")
}

func daemonVerdict(r *replay.Result) string {
	dropped := int64(0)
	for _, n := range r.Daemon.Dropped {
		dropped += n
	}
	out := "its counters agree"
	if !r.DaemonAgrees() {
		out = "its counters DIFFER (were other clients busy?)"
	}
	if dropped == 0 {
		return out + "; nothing was dropped before it was written"
	}
	return fmt.Sprintf("%s; %s dropped before they were written", out, human.Plural(dropped, "chunk"))
}
