package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/tier"
)

func scrubCommand() *cobra.Command {
	var rate string
	cmd := &cobra.Command{
		Use:   "scrub",
		Short: "Read everything on disk and delete what has gone bad",
		Long: `Read every payload on disk and compare it with its checksum. What does not match
is read once more and then deleted; it will be recomputed. What the device cannot
read stays. The exit code is 1 if anything was wrong. It takes an admin.`,
		Args: cobra.NoArgs,
	}
	var at *adminFlags
	at = asking(cmd, func(ctx context.Context, c *admin.Client, _ []string) (*admin.Scrubbed, error) {
		perSecond, err := config.ParseBytes(rate)
		if err != nil {
			return nil, usage(fmt.Errorf("--rate: %w", err))
		}
		s := new(admin.Scrubbed)
		return s, follow(cmd, at.socket, "scrub", unread(), func() error {
			return c.Do(ctx, "POST", "/v1/scrub", admin.ScrubRequest{BytesPerSecond: int64(perSecond)}, s)
		})
	}, printScrub)
	quietFlag(cmd)
	cmd.Flags().StringVar(&rate, "rate", "0", "bytes a second at most, such as 200MiB; 0 = as fast as the disk allows")
	return cmd
}

// unread is how much of the disk a scrub has still to read, from the first look on.
func unread() func(*statsView) int64 {
	begun := int64(-1)
	return func(v *statsView) int64 {
		disk := v.Store.Tiers[tier.Disk]
		read := int64(disk.Counters["scrub_bytes"])
		if begun < 0 {
			begun = read
		}
		return max(0, disk.PayloadBytes-(read-begun))
	}
}

func printScrub(w io.Writer, s *admin.Scrubbed) error {
	fmt.Fprintf(w, "%s read, %s\n", human.Plural(s.Chunks, "chunk"), human.Bytes(s.Bytes))
	if s.Wrong > 0 || s.Failed > 0 {
		return fmt.Errorf("%s wrong and deleted, %d unreadable", human.Plural(s.Wrong, "chunk"), s.Failed)
	}
	return nil
}
