package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/lab/replay"
	"github.com/kvstored/kvstored/lab/simulate"
)

// notWithGroups are flags of --simulate that mean nothing with --groups.
var notWithGroups = []string{"tree", "hints", "resample", "bytes-per-block", "prefill-depth", "rank-by", "small-ratio", "max-freq", "disk-rank-by", "write-mode", "unsafe-age", "min-hits"}

// runGroups simulates a store of the groups of a hybrid model.
func (f *replayFlags) runGroups(cmd *cobra.Command) error {
	o, err := f.groupOptions(cmd)
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
	var rows []simulate.GroupRow
	err = f.withBar(cmd, o.Rows(), func(ctx context.Context, step func(string)) (err error) {
		o.Done = func(r simulate.GroupRow) {
			step(fmt.Sprintf("%s, %s at %s", r.Policy, r.Store, human.Plural(r.CapacityBlocks, "block")))
		}
		rows, err = simulate.RunGroups(ctx, trace, o)
		return err
	})
	switch {
	case err != nil:
		return err
	case f.asJSON:
		return printJSON(cmd.OutOrStdout(), rows)
	}
	groupTable(rows).Print(cmd.OutOrStdout(), "")
	return nil
}

// liveGroups are the groups that a live replay plays, the full ones as one, with payloads
// in the proportions of the model's. None without --groups.
func (f *replayFlags) liveGroups(payload int64) (groups []replay.Group, err error) {
	if f.simulate.groups == "" {
		return nil, nil
	}
	m, err := simulate.ModelNamed(f.simulate.groups)
	if err != nil {
		return nil, usage(fmt.Errorf("--groups: %w", err))
	}
	if f.blockTokens < 1 {
		return nil, usage(errBlockTokens)
	}
	pieces := simulate.Pieces(&m, f.blockTokens)
	for _, p := range pieces {
		size := max(1, payload*p.Bytes/pieces[0].Bytes)
		if size > 64<<20 {
			return nil, usage(fmt.Errorf("--payload-bytes %s: a %s has %s then, use a smaller one: at most 64MiB", f.payload, p.Kind, human.Bytes(size)))
		}
		groups = append(groups, replay.Group{Kind: client.GroupKind(p.Kind), Tokens: p.Tokens, Bytes: int(size)})
	}
	return groups, nil
}

func (f *replayFlags) groupOptions(cmd *cobra.Command) (o simulate.GroupOptions, err error) {
	for _, name := range notWithGroups {
		if cmd.Flags().Changed(name) {
			return o, usage(fmt.Errorf("--%s is not for --groups", name))
		}
	}
	m, err := simulate.ModelNamed(f.simulate.groups)
	if err != nil {
		return o, usage(fmt.Errorf("--groups: %w", err))
	}
	o = simulate.GroupOptions{Model: &m, Policies: f.simulate.policies, Keeps: simulate.Keeps()}
	if slices.Equal(o.Policies, []string{"all"}) {
		o.Policies = simulate.GroupPolicies()
	}
	if o.Capacities, err = parseBlocks("capacity-blocks", f.simulate.capacities); err != nil {
		return o, err
	}
	if o.DiskCapacity, err = parseBlocks("disk-blocks", f.simulate.disk.blocks); err != nil {
		return o, err
	}
	o.DiskPolicies, o.PerRequest = orAll(f.simulate.disk.policies, simulate.GroupPolicies()), f.simulate.perRequest
	switch {
	case f.blockTokens < 1:
		return o, usage(errBlockTokens)
	case o.PerRequest && !f.asJSON:
		return o, usage(errPerRequest)
	case len(o.DiskCapacity) == 0 && cmd.Flags().Changed("disk-policy"):
		return o, usage(errors.New("--disk-policy is for --disk-blocks"))
	case len(o.DiskCapacity) > 0 && len(o.Capacities) == 0:
		return o, usage(errDRAM)
	}
	if err := o.Check(); err != nil {
		return o, usage(err)
	}
	return o, nil
}

// groupTable has all digits of every number.
func groupTable(rows []simulate.GroupRow) *human.Table {
	t := new(human.Table)
	t.Row("policy", "store", "capacity_blocks", "capacity_bytes", "requests", "total_prompt_tokens", "total_hit_tokens",
		"overall_hit_rate", "lost_tokens", "loaded_bytes", "bytes_per_hit_token", "bytes_by_group", "dead_bytes")
	for _, r := range rows {
		var by []string
		dead := int64(0)
		for _, g := range r.Groups {
			by = append(by, fmt.Sprintf("%s=%d", g.Kind, g.Bytes))
			dead += g.DeadBytes
		}
		of := func(n int64) string { return strconv.FormatInt(n, 10) }
		t.Row(r.Policy, string(r.Store), of(int64(r.CapacityBlocks)), of(r.CapacityBytes), of(int64(r.Requests)), of(r.TotalPromptTokens), of(r.TotalHitTokens),
			strconv.FormatFloat(r.OverallHitRate, 'g', -1, 64), of(r.LostTokens), of(r.LoadedBytes), strconv.FormatFloat(r.BytesPerHitToken, 'f', 0, 64), strings.Join(by, ","), of(dead))
	}
	return t
}
