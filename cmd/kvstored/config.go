package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/admin"
)

func configCommand() *cobra.Command {
	var (
		at     adminFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration that the daemon runs with",
		Long: `Print the configuration that the running daemon has now, as a file: that of its
start, with what reloads have changed since (SIGHUP has it read its file again).
Comments at the end name the keys of that file whose values wait for a restart.
It takes an admin.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return at.call(func(c *admin.Client) error {
				var cfg admin.Config
				if err := c.Get(cmd.Context(), "/v1/config", &cfg); err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), cfg)
				}
				fmt.Fprint(cmd.OutOrStdout(), cfg.Running)
				if !cfg.LastReloadOK {
					fmt.Fprintln(cmd.OutOrStdout(), "# the last reload was refused; the daemon's log says why")
				}
				for _, w := range cfg.NeedsRestart {
					fmt.Fprintf(cmd.OutOrStdout(), "# waits for a restart: %s: %s\n", w.Key, w.File)
				}
				return nil
			})
		},
	}
	at.add(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}
