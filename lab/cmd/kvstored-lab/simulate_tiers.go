package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kvstored/kvstored/lab/simulate"
)

// diskFlags are the command line of a simulation of two tiers.
type diskFlags struct {
	blocks, policies, writes []string
	unsafeAge                time.Duration
	minHits                  int
	rankBy                   string
}

func (d *diskFlags) define(fl *pflag.FlagSet) {
	fl.StringSliceVar(&d.blocks, "disk-blocks", nil, "simulate DRAM of --capacity-blocks over a disk of so many blocks")
	fl.StringSliceVar(&d.policies, "disk-policy", []string{"lru"}, "with --disk-blocks: simulate these policies of the disk: all, or some")
	fl.StringVar(&d.rankBy, "disk-rank-by", "tokens", "with --disk-blocks: as --rank-by, for the disk")
	fl.StringSliceVar(&d.writes, "write-mode", []string{"auto"}, "with --disk-blocks: simulate these write modes: all, or some of through,back,auto,selective")
	fl.DurationVar(&d.unsafeAge, "unsafe-age", simulate.DefaultUnsafeAge, "with --disk-blocks: write.unsafe_age of the mode auto; 0 = no bound")
	fl.IntVar(&d.minHits, "min-hits", 2, "with --disk-blocks: write.min_hits of the mode selective")
}

// Flags of --simulate that mean something only with --disk-blocks, or nothing then.
var (
	onlyWithDisk = []string{"disk-policy", "disk-rank-by", "write-mode", "unsafe-age", "min-hits"}
	notWithDisk  = []string{"tree", "hints", "resample", "groups", "small-ratio", "max-freq"}
)

var errDRAM = errors.New("--disk-blocks needs --capacity-blocks, the size of DRAM")

// runTiers simulates DRAM over a disk.
func (f *replayFlags) runTiers(cmd *cobra.Command) error {
	o, err := f.tierOptions(cmd)
	if err != nil {
		return err
	}
	trace, err := f.readTrace(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	var rows []simulate.TierRow
	steps := len(o.Policies) * len(o.DiskPolicies) * len(o.Writes) * len(o.Capacities) * len(o.DiskCapacity)
	err = f.withBar(cmd, steps, func(ctx context.Context, step func(string)) (err error) {
		o.Done = func(r simulate.TierRow) { step(fmt.Sprintf("%s over %s, %s", r.Policy, r.DiskPolicy, r.Write)) }
		rows, err = simulate.RunTiers(ctx, trace, o)
		return err
	})
	if err != nil {
		return err
	}
	for i := range rows {
		rows[i].WrittenBytes = rows[i].WrittenBlocks * f.simulate.blockBytes
	}
	if f.asJSON {
		return printJSON(cmd.OutOrStdout(), rows)
	}
	f.printTrace(cmd.OutOrStdout(), trace)
	f.tierTable(rows).Print(cmd.OutOrStdout(), "")
	return nil
}

func (f *replayFlags) tierOptions(cmd *cobra.Command) (o simulate.TierOptions, err error) {
	s, d := &f.simulate, &f.simulate.disk
	for _, name := range notWithDisk {
		if cmd.Flags().Changed(name) {
			return o, usage(fmt.Errorf("--%s is not for --disk-blocks", name))
		}
	}
	o = simulate.TierOptions{
		Policies: orAll(s.policies, simulate.TierPolicies()), DiskPolicies: orAll(d.policies, simulate.TierPolicies()),
		UnsafeAge: d.unsafeAge, MinHits: d.minHits, PrefillDepth: s.prefillDepth, PerRequest: s.perRequest,
	}
	if o.ByCompute, err = parseRankBy("rank-by", s.rankBy); err != nil {
		return o, err
	}
	if o.DiskByCompute, err = parseRankBy("disk-rank-by", d.rankBy); err != nil {
		return o, err
	}
	names := []string{}
	for _, w := range simulate.Writes() {
		names = append(names, string(w))
	}
	for _, name := range orAll(d.writes, names) {
		o.Writes = append(o.Writes, simulate.Write(name))
	}
	if o.Capacities, err = parseBlocks("capacity-blocks", s.capacities); err != nil {
		return o, err
	}
	if o.DiskCapacity, err = parseBlocks("disk-blocks", d.blocks); err != nil {
		return o, err
	}
	if s.blockBytes, err = s.parseBlockSize(); err != nil {
		return o, err
	}
	switch {
	case len(o.Capacities) == 0:
		return o, usage(errDRAM)
	case s.perRequest && !f.asJSON:
		return o, usage(errPerRequest)
	case f.blockTokens < 1:
		return o, usage(errBlockTokens)
	}
	if err := o.Check(); err != nil {
		return o, usage(err)
	}
	return o, nil
}

// orAll is the names of a flag, which may be all there are.
func orAll(names, all []string) []string {
	if slices.Equal(names, []string{"all"}) {
		return all
	}
	return names
}
