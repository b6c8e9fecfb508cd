package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/daemon"
)

func configCommand() *cobra.Command {
	var (
		socket string
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
			return withClient(cmd.Context(), socket, client.Options{Inline: true}, func(c *client.Client) error {
				cfg, err := configOf(cmd, c)
				if err != nil {
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
	socketFlag(cmd, &socket)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// configOf asks a daemon for its configuration.
func configOf(cmd *cobra.Command, c *client.Client) (*daemon.ConfigStats, error) {
	const notYours = "the daemon tells only administrators its configuration; see listen.admin_uids and access"
	raw, err := c.Stats(cmd.Context())
	if errors.Is(err, client.ErrDenied) {
		return nil, errors.New(notYours)
	}
	if err != nil {
		return nil, err
	}
	var v struct {
		Config daemon.ConfigStats `json:"config"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, fmt.Errorf("the daemon's statistics: %w", err)
	}
	if v.Config.Running == "" {
		return nil, errors.New(notYours)
	}
	return &v.Config, nil
}
