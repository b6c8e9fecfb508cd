package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
)

func printRawStats(cmd *cobra.Command, c *client.Client) error {
	raw, err := c.Stats(cmd.Context())
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return fmt.Errorf("the daemon's statistics: %w", err)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), b.String())
	return err
}

// readStats asks a daemon for its statistics.
func readStats(ctx context.Context, c *client.Client) (*statsView, error) {
	raw, err := c.Stats(ctx)
	if err != nil {
		return nil, err
	}
	v := new(statsView)
	if err := json.Unmarshal(raw, v); err != nil {
		return nil, fmt.Errorf("the daemon's statistics: %w", err)
	}
	return v, nil
}

// tiersOfDaemon are the tiers that the daemon has, by name.
func tiersOfDaemon(ctx context.Context, c *client.Client) (map[string]tierView, error) {
	v, err := readStats(ctx, c)
	if err != nil {
		return nil, err
	}
	return v.Store.Tiers, nil
}
