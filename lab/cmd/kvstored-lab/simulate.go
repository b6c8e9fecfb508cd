package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/lab/replay"
	"github.com/kvstored/kvstored/lab/simulate"
)

// simulateFlags are the command line of replay --simulate, beside --trace,
// --block-size and --json.
type simulateFlags struct {
	on, tree, skipBad bool
	policies          []string
	capacities        []string
	blockSize, hints  string
	groups            string
	resample          int
	perRequest        bool
	prefillDepth      float64
	rankBy            string
	s3fifo            simulate.S3FIFO
	disk              diskFlags
	blockBytes        int64 // blockSize parsed, 0 = not said
}

func (s *simulateFlags) define(fl *pflag.FlagSet) {
	fl.BoolVar(&s.on, "simulate", false, "count what a cache would have hit, without a daemon")
	fl.StringSliceVar(&s.policies, "policy", []string{"all"}, "simulate these policies: all, or some of "+strings.Join(simulate.Policies(), ",")+"; "+simulate.StaticToo+" is "+simulate.Static)
	fl.StringSliceVar(&s.capacities, "capacity-blocks", []string{"auto"}, "simulate caches of so many blocks; auto = a sweep up to all blocks of the trace")
	fl.BoolVar(&s.tree, "tree", false, "simulate as the daemon evicts: only blocks that no other one stands on")
	fl.StringVar(&s.hints, "hints", "none", "simulate clients that tell the policies which take hints what is not used again (oracle), or how long each answer will be (answers); "+
		"or all policies that evict leaves only which prompts are done (done), when a session ends (ends), and also how long it pauses (pause)")
	fl.IntVar(&s.resample, "resample", 0, "simulate so many times without a random fifth of the sessions, and show mean and deviation")
	fl.BoolVar(&s.skipBad, "skip-bad", false, "simulate without the lines that are not requests, and count them")
	fl.StringVar(&s.groups, "groups", "", "play or simulate a hybrid model: a YAML file with its groups, or one of "+strings.Join(simulate.Models(), ", "))
	fl.BoolVar(&s.perRequest, "per-request", false, "with --json: have the tokens that each request hit, too")
	fl.Float64Var(&s.prefillDepth, "prefill-depth", simulate.DefaultPrefillDepth, "simulate a model that takes twice as long for a token so deep in a prompt as for the first, for the column of compute and --rank-by")
	fl.StringVar(&s.rankBy, "rank-by", "tokens", "simulate tenure that weighs blocks by tokens, or by what these take to compute (compute)")
	fl.Float64Var(&s.s3fifo.SmallShare, "small-ratio", 0.1, "simulate s3fifo and s3fifo-static with a small queue of this share of the room")
	fl.IntVar(&s.s3fifo.MaxUses, "max-freq", 3, "simulate s3fifo and s3fifo-static with so many uses of a block that count at most")
	s.disk.define(fl)
	fl.StringVar(&s.blockSize, "bytes-per-block", "", "also show sizes in bytes, at so many for a block's KV")
}

// Each mode of replay has flags that mean nothing to the other.
var (
	simulateOnly = []string{
		"policy", "capacity-blocks", "tree", "hints", "resample", "skip-bad", "bytes-per-block", "prefill-depth", "rank-by",
		"small-ratio", "max-freq", "disk-blocks", "disk-policy", "disk-rank-by", "write-mode", "unsafe-age", "min-hits",
	}
	liveOnly = []string{"honor-timestamps", "speed", "payload-bytes", "concurrency", "wait-complete", "config", "socket"}
)

// oneMode refuses flags of the other mode.
func oneMode(cmd *cobra.Command, simulated bool) error {
	others, format := simulateOnly, "--%s is for --simulate"
	if simulated {
		others, format = liveOnly, "--%s is for a live daemon, not for --simulate"
	}
	for _, name := range others {
		if cmd.Flags().Changed(name) {
			return usage(fmt.Errorf(format, name))
		}
	}
	return nil
}

// runSimulate reads the trace once and simulates every policy at every
// capacity, several at a time.
func (f *replayFlags) runSimulate(cmd *cobra.Command) error {
	o, err := f.simulateOptions(cmd)
	if err != nil {
		return err
	}
	trace, err := f.readTrace(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if len(o.Capacities) == 0 {
		o.Capacities = trace.Sweep()
	}
	if slices.Equal(f.simulate.policies, []string{"all"}) && trace.CheckTree() != nil {
		o.Policies = slices.DeleteFunc(o.Policies, simulate.NeedsTree)
	}
	if f.simulate.resample > 0 {
		return f.runResamples(cmd, trace, o)
	}
	var rows []simulate.Row
	err = f.withBar(cmd, len(o.Policies)*len(o.Capacities), func(ctx context.Context, step func(string)) (err error) {
		o.Done = func(r simulate.Row) { step(atCapacity(r)) }
		rows, err = simulate.Run(ctx, trace, o)
		return err
	})
	if err != nil {
		return err
	}
	return f.printRows(cmd.OutOrStdout(), trace, rows)
}

func atCapacity(r simulate.Row) string {
	return fmt.Sprintf("%s at %s", r.Policy, human.Plural(r.CapacityBlocks, "block"))
}

// withBar runs a simulation of so many steps until an interrupt, and shows how far it is.
func (f *replayFlags) withBar(cmd *cobra.Command, steps int, run func(ctx context.Context, step func(what string)) error) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	bar := human.NewProgress(cmd.ErrOrStderr(), filepath.Base(f.trace), steps)
	err := run(ctx, func(what string) { bar.Step(func() string { return what }) })
	bar.End()
	if ctx.Err() != nil {
		return errors.New("interrupted; nothing is known before the end")
	}
	return err
}

// Faults of the command line of several kinds of simulation.
var (
	errBlockTokens = errors.New("--block-size must be at least 1")
	errPerRequest  = errors.New("--per-request is for --json: a table has no room for it")
)

// simulateOptions has no capacities where a sweep is asked for.
func (f *replayFlags) simulateOptions(cmd *cobra.Command) (simulate.Options, error) {
	s := &f.simulate
	o := simulate.Options{Policies: slices.Clone(s.policies), Tree: s.tree, PerRequest: s.perRequest, PrefillDepth: s.prefillDepth, S3FIFO: s.s3fifo}
	if slices.Equal(s.policies, []string{"all"}) {
		o.Policies = simulate.Policies()
		if s.tree {
			o.Policies = slices.DeleteFunc(o.Policies, simulate.IsFlat)
		}
	}
	for i, name := range o.Policies {
		if name == simulate.StaticToo {
			o.Policies[i] = simulate.Static
		}
	}
	var err error
	if o.ByCompute, err = parseRankBy("rank-by", s.rankBy); err != nil {
		return o, err
	}
	if err = s.parseHints(&o); err != nil {
		return o, err
	}
	if o.Capacities, err = parseBlocks("capacity-blocks", s.capacities); err != nil {
		return o, err
	}
	if s.blockBytes, err = s.parseBlockSize(); err != nil {
		return o, err
	}
	if err := f.checkSimulate(cmd, &o); err != nil {
		return o, usage(err)
	}
	return o, nil
}

// parseRankBy reads what a policy weighs blocks by.
func parseRankBy(flag, s string) (compute bool, err error) {
	switch s {
	case "tokens", "compute":
		return s == "compute", nil
	}
	return false, usage(fmt.Errorf("--%s %q: use tokens or compute", flag, s))
}

// checkSimulate names the first fault in what flags say together.
func (f *replayFlags) checkSimulate(cmd *cobra.Command, o *simulate.Options) error {
	s := &f.simulate
	if err := s.checkS3FIFO(cmd, o); err != nil {
		return err
	}
	for _, name := range onlyWithDisk {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s is for --disk-blocks", name)
		}
	}
	switch {
	case s.resample < 0 || s.resample == 1:
		return errors.New("--resample must be at least 2: one says nothing of a deviation")
	case s.perRequest && (!f.asJSON || s.resample > 0):
		return errPerRequest
	case s.prefillDepth <= 0:
		return fmt.Errorf("--prefill-depth %v: use a number of tokens above 0", s.prefillDepth)
	case f.blockTokens < 1:
		return errBlockTokens
	}
	return o.Check()
}

// checkS3FIFO refuses numbers of S3-FIFO that say nothing.
func (s *simulateFlags) checkS3FIFO(cmd *cobra.Command, o *simulate.Options) error {
	if s.s3fifo.SmallShare <= 0 || s.s3fifo.MaxUses <= 0 {
		return errors.New("--small-ratio and --max-freq must be above 0")
	}
	played := slices.Contains(o.Policies, "s3fifo") || slices.Contains(o.Policies, simulate.Static)
	for _, name := range []string{"small-ratio", "max-freq"} {
		if cmd.Flags().Changed(name) && !played {
			return fmt.Errorf("--%s is for the policies s3fifo and %s", name, simulate.Static)
		}
	}
	return nil
}

// parseHints reads what the simulated clients say.
func (s *simulateFlags) parseHints(o *simulate.Options) error {
	switch s.hints {
	case "none":
	case "oracle":
		o.Oracle = true
	case "answers":
		o.Answers = true
	case "done":
		o.Sessions = simulate.Turns
	case "ends":
		o.Sessions = simulate.Ends
	case "pause":
		o.Sessions = simulate.Pauses
	default:
		return usage(fmt.Errorf("--hints %q: use none, oracle, answers, done, ends or pause", s.hints))
	}
	return nil
}

// parseBlocks reads the numbers of blocks of a flag; none for auto.
func parseBlocks(flag string, texts []string) (out []int, err error) {
	if slices.Equal(texts, []string{"auto"}) {
		return nil, nil
	}
	for _, text := range texts {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, usage(fmt.Errorf("--%s %q: want numbers of blocks, or auto", flag, text))
		}
		out = append(out, n)
	}
	return out, nil
}

// parseBlockSize reads the size of a block's KV; 0 where it was not said.
func (s *simulateFlags) parseBlockSize() (int64, error) {
	if s.blockSize == "" {
		return 0, nil
	}
	n, err := config.ParseBytes(s.blockSize)
	if err != nil || n < 1 {
		return 0, usage(fmt.Errorf("--bytes-per-block %q: want a size, as 2MiB", s.blockSize))
	}
	return int64(n), nil
}

// readTrace reads the trace, and names the first line passed over.
func (f *replayFlags) readTrace(warn io.Writer) (*simulate.Trace, error) {
	if f.limit < 0 {
		return nil, usage(errors.New("--limit must be at least 0"))
	}
	form, err := f.form()
	if err != nil {
		return nil, err
	}
	in, err := replay.Open(f.trace)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	t, err := simulate.Read(in, f.trace, simulate.Reading{BlockTokens: f.blockTokens, Unit: form.Unit, SkipBad: f.simulate.skipBad, SaveUnfull: f.saveUnfull, Limit: f.limit})
	if err == nil && t.Skipped > 0 {
		fmt.Fprintf(warn, "%s skipped, the first: %s\n", human.Plural(t.Skipped, "line"), t.Bad)
	}
	if err == nil && t.Late > 0 {
		fmt.Fprintf(warn, "%s before one of an earlier line: sorted by time\n", human.Plural(t.Late, "request"))
	}
	return t, err
}
