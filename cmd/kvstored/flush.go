package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/human"
)

type flushResult struct {
	Chunks uint64               `json:"written_chunks"`
	Bytes  uint64               `json:"written_bytes"`
	Left   map[string]flushLeft `json:"left"` // by reason; empty: everything is written
}

type flushLeft struct {
	Chunks uint64 `json:"chunks"`
	Bytes  uint64 `json:"bytes"`
}

func flushCommand() *cobra.Command {
	var (
		socket          string
		asJSON, durable bool
		timeout         time.Duration
	)
	cmd := &cobra.Command{
		Use:   "flush",
		Short: "Wait until everything stored is on disk and in the bucket",
		Long: `Wait until everything that is stored now is on disk, where it survives the end
of the daemon; with --durable, a power failure too. Where there is a bucket, wait
until it is uploaded as well: give --timeout what that takes. What was given up is
printed by reason, and the exit code is 1 then.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout < time.Millisecond {
				return usage(fmt.Errorf("--timeout %v: use 1ms or more", timeout))
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return withClient(ctx, socket, client.Options{Inline: true}, func(c *client.Client) error {
				f, err := c.Flush(ctx, durable)
				if err != nil {
					return err
				}
				tiers, err := tiersOfDaemon(ctx, c)
				if errors.Is(err, client.ErrDenied) {
					tiers, err = nil, nil
				}
				if err != nil {
					return err
				}
				return printFlush(cmd.OutOrStdout(), &f, tiers, asJSON)
			})
		},
	}
	socketFlag(cmd, &socket)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&durable, "durable", false, "survive a power failure too")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait")
	return cmd
}

// written says where everything stored is after a flush that left nothing. Tiers
// are nil for a user that may not know them.
func written(f *client.Flushed, tiers map[string]tierView) string {
	_, disk := tiers["disk"]
	_, remote := tiers["remote"]
	just := fmt.Sprintf("; %s (%s) went there just now", human.Plural(f.Chunks, "chunk"), human.Bytes(f.Bytes))
	switch {
	case tiers == nil:
		return "everything stored is written to the tiers below DRAM, as far as there are such" + just
	case disk && remote: // a chunk counts once for each
		return "everything stored is on disk and in the bucket" + just + ", both counted"
	case disk:
		return "everything stored is on disk" + just
	case remote:
		return "everything stored is in the bucket" + just
	}
	return "nothing is stored, and there is no tier below DRAM to write to"
}

// lostChunks is the reason of chunks that a tier below had and has lost.
const lostChunks = "lost"

// clearedChunks is the reason of those that clear took out of a tier.
const clearedChunks = "cleared"

func printFlush(w io.Writer, f *client.Flushed, tiers map[string]tierView, asJSON bool) error {
	r := flushResult{Chunks: f.Chunks, Bytes: f.Bytes, Left: make(map[string]flushLeft)}
	left, lost := uint64(0), uint64(0)
	for _, l := range f.Left {
		r.Left[l.Reason] = flushLeft{l.Chunks, l.Bytes}
		if left += l.Chunks; l.Reason == lostChunks {
			lost += l.Chunks
		}
	}
	if asJSON {
		if err := printJSON(w, r); err != nil {
			return err
		}
	} else {
		if left == 0 {
			fmt.Fprintln(w, written(f, tiers))
		}
		for _, l := range f.Left {
			if l.Reason == lostChunks { // of which nobody knows the bytes
				fmt.Fprintf(w, "lost: %s, which a tier had stored\n", human.Plural(l.Chunks, "chunk"))
				continue
			}
			fmt.Fprintf(w, "not written, %s: %s, %s\n", l.Reason, human.Plural(l.Chunks, "chunk"), human.Bytes(l.Bytes))
		}
	}
	if lost > 0 {
		return fmt.Errorf("%s lost, see the daemon's log; %s not written, kept in DRAM until evicted", human.Plural(lost, "chunk"), human.Plural(left-lost, "chunk"))
	}
	if left > 0 {
		if c := r.Left[clearedChunks].Chunks; c > 0 {
			return fmt.Errorf("%s not written; %s of these were taken out of a tier by clear, and stay where they are otherwise", human.Plural(left, "chunk"), human.Plural(c, "chunk"))
		}
		return fmt.Errorf("%s not written, kept in DRAM until evicted", human.Plural(left, "chunk"))
	}
	return nil
}
