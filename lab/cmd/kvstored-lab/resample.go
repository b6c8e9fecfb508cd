package main

import (
	"errors"
	"fmt"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/lab/simulate"
)

// runResamples prints how much the numbers owe to the choice of sessions.
func (f *replayFlags) runResamples(cmd *cobra.Command, trace *simulate.Trace, o simulate.Options) error {
	n := f.simulate.resample
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	bar := cli.NewProgress(cmd.ErrOrStderr(), filepath.Base(f.trace), n*len(o.Policies)*len(o.Capacities))
	o.Done = func(r simulate.Row) {
		bar.Step(func() string { return fmt.Sprintf("%s at %s", r.Policy, human.Plural(r.CapacityBlocks, "block")) })
	}
	spreads, err := simulate.Resample(ctx, trace, o, n)
	bar.End()
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted; nothing is known before the end")
	case err != nil:
		return err
	case f.asJSON:
		return printJSON(cmd.OutOrStdout(), spreads)
	}
	var t cli.Table
	t.Row("policy", "capacity_blocks", "samples", "mean", "deviation", "lead", "lead_deviation")
	for _, s := range spreads {
		cells := []string{s.Policy, strconv.Itoa(s.CapacityBlocks), strconv.Itoa(s.Samples)}
		for _, x := range []float64{s.Mean, s.Deviation, s.Lead, s.LeadDeviation} {
			cells = append(cells, strconv.FormatFloat(x, 'f', 5, 64))
		}
		t.Row(cells...)
	}
	t.Print(cmd.OutOrStdout(), "")
	return nil
}
