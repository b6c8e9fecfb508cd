package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/internal/human"
)

func clearCommand() *cobra.Command {
	var (
		at          adminFlags
		asJSON, yes bool
		dry         bool
	)
	cmd := &cobra.Command{
		Use:   "clear [TIER...] --yes",
		Short: "Forget everything that is stored",
		Long: `Forget everything in the tiers named (cpu, disk, remote), or in cpu and disk.
What is in no other tier must be recomputed. remote deletes from the bucket, for
all machines that share it, but only what this daemon knows of: purge deletes all
of a space. Nothing is asked: --yes has to be given, or --dry-run, which only counts.`,
		Example: `  kvstored clear --yes
  kvstored clear disk --yes`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := tiersOf(args...); err != nil {
				return err
			}
			if len(args) == 0 {
				args = []string{"cpu", "disk"}
			}
			for i := range args {
				args[i] = placeName(args[i])
			}
			if dry {
				return countStored(cmd, &at, args, asJSON)
			}
			if !yes {
				whose := ""
				if slices.Contains(args, "remote") {
					whose = " and for all machines that share the bucket"
				}
				return usage(fmt.Errorf("this forgets what is stored, for good%s; add --yes if that is meant, or --dry-run", whose))
			}
			return at.call(func(c *admin.Client) error {
				var r admin.Chunks
				if err := c.Do(cmd.Context(), "POST", "/v1/clear", admin.ClearRequest{Tiers: args}, &r); err != nil {
					return err
				}
				return printChunks(cmd.OutOrStdout(), r, asJSON, "forgotten")
			})
		},
	}
	at.add(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&yes, "yes", false, "it is meant")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say how much there is; nothing is forgotten")
	cmd.MarkFlagsMutuallyExclusive("yes", "dry-run")
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		left := slices.DeleteFunc(slices.Clone(tierNames[:]), func(name string) bool { return slices.Contains(args, name) })
		return left, cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

// countStored says how many chunks a clear of tiers would forget in each.
func countStored(cmd *cobra.Command, at *adminFlags, tiers []string, asJSON bool) error {
	return withClient(cmd.Context(), at.socket, client.Options{Inline: true}, func(c *client.Client) error {
		have, err := tiersOfDaemon(cmd.Context(), c)
		if err != nil {
			return err
		}
		counts := make(map[string]int64)
		var t cli.Table
		t.Row("", "chunks", "bytes")
		for _, name := range tiers {
			s, ok := have[name]
			if !ok {
				return fmt.Errorf("there is no %s tier", name)
			}
			counts[name] = s.Entries
			t.Row(name, human.Count(s.Entries), human.Bytes(s.UsedBytes))
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), struct {
				Chunks map[string]int64 `json:"chunks"`
				DryRun bool             `json:"dry_run"`
			}{counts, true})
		}
		fmt.Fprintln(cmd.OutOrStdout(), "would be forgotten:")
		t.Print(cmd.OutOrStdout(), "")
		return nil
	})
}
