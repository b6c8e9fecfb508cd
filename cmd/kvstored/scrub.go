package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/human"
)

func scrubCommand() *cobra.Command {
	var (
		at              adminFlags
		rate            string
		asJSON, rebuild bool
	)
	cmd := &cobra.Command{
		Use:   "scrub",
		Short: "Read everything on disk and delete what has gone bad",
		Long: `Read every payload on disk and compare it with its checksum. What does not match
is read once more and then deleted; it will be recomputed. What the device cannot
read stays. The exit code is 1 if anything was wrong. It takes an admin.

With --rebuild make the index of the disk tier anew instead: compare the header
of every payload with the database, bring back what that has lost, and drop what
was deleted or replaced, or is wrong. The daemon serves meanwhile, and goes on
with it if this command is ended.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			perSecond, err := config.ParseBytes(rate)
			if err != nil {
				return usage(fmt.Errorf("--rate: %w", err))
			}
			if rebuild && cmd.Flags().Changed("rate") {
				return usage(errors.New("--rate is for a scrub without --rebuild, which goes as fast as the disk allows"))
			}
			ctx := cmd.Context()
			if rebuild {
				return at.call(func(c *admin.Client) error { return rebuildIndex(cmd, c, asJSON) })
			}
			return at.call(func(c *admin.Client) error {
				var s admin.Scrubbed
				if err := c.Do(ctx, "POST", "/v1/scrub", admin.ScrubRequest{BytesPerSecond: int64(perSecond)}, &s); err != nil {
					return err
				}
				return printScrub(cmd, &s, asJSON)
			})
		},
	}
	at.add(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&rebuild, "rebuild", false, "make the index of the disk tier anew from the headers of what lies there")
	cmd.Flags().StringVar(&rate, "rate", "0", "bytes a second at most, such as 200MiB; 0 = as fast as the disk allows")
	return cmd
}

func printScrub(cmd *cobra.Command, s *admin.Scrubbed, asJSON bool) error {
	w := cmd.OutOrStdout()
	if asJSON {
		if err := printJSON(w, s); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(w, "%s read, %s\n", human.Plural(s.Chunks, "chunk"), human.Bytes(s.Bytes))
	}
	if s.Wrong > 0 || s.Failed > 0 {
		return fmt.Errorf("%s wrong and deleted, %d unreadable", human.Plural(s.Wrong, "chunk"), s.Failed)
	}
	return nil
}
