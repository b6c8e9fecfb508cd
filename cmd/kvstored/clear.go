package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/admin"
)

func clearCommand() *cobra.Command {
	var (
		at          adminFlags
		asJSON, yes bool
	)
	cmd := &cobra.Command{
		Use:   "clear [TIER...] --yes",
		Short: "Forget everything that is stored",
		Long: `Forget everything in the tiers named (cpu, disk, remote), or in cpu and disk.
What is in no other tier must be recomputed. remote deletes from the bucket, for
all machines that share it, but only what this daemon knows of: purge deletes all
of a space. Nothing is asked: --yes has to be given.`,
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
			if !yes {
				whose := ""
				if slices.Contains(args, "remote") {
					whose = " and for all machines that share the bucket"
				}
				return usage(fmt.Errorf("this forgets what is stored, for good%s; add --yes if that is meant", whose))
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
	return cmd
}
