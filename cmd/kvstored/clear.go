package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
)

func clearCommand() *cobra.Command {
	var (
		socket      string
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
			tiers, err := tiersOf(args...)
			if err != nil {
				return err
			}
			if !yes {
				whose := ""
				if tiers&client.Remote != 0 {
					whose = " and for all machines that share the bucket"
				}
				return usage(fmt.Errorf("this forgets what is stored, for good%s; add --yes if that is meant", whose))
			}
			return withClient(cmd.Context(), socket, client.Options{Inline: true}, func(c *client.Client) error {
				n, err := c.Clear(cmd.Context(), tiers)
				if err != nil {
					return err
				}
				return chunksResult{n}.print(cmd.OutOrStdout(), asJSON, "forgotten")
			})
		},
	}
	socketFlag(cmd, &socket)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&yes, "yes", false, "it is meant")
	return cmd
}
