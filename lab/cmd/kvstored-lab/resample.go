package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/lab/simulate"
)

// runResamples prints how much the numbers owe to the choice of sessions.
func (f *replayFlags) runResamples(cmd *cobra.Command, trace *simulate.Trace, o simulate.Options) error {
	n := f.simulate.resample
	var spreads []simulate.Spread
	err := f.withBar(cmd, n*len(o.Policies)*len(o.Capacities), func(ctx context.Context, step func(string)) (err error) {
		o.Done = func(r simulate.Row) { step(atCapacity(r)) }
		spreads, err = simulate.Resample(ctx, trace, o, n)
		return err
	})
	switch {
	case err != nil:
		return err
	case f.asJSON:
		return printJSON(cmd.OutOrStdout(), spreads)
	}
	var t human.Table
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
