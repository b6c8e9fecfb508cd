package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/key"
)

type purgeResult struct {
	Space  string `json:"space"`
	DryRun bool   `json:"dry_run"`
	Known  uint64 `json:"known_chunks"`
	Found  uint64 `json:"bucket_chunks"` // with dry_run those that are known too
	Bytes  uint64 `json:"bucket_bytes"`
}

func purgeCommand() *cobra.Command {
	var (
		socket           string
		asJSON, yes, dry bool
		space            key.Space
	)
	cmd := &cobra.Command{
		Use:   "purge [SPACE] --yes",
		Short: "Delete a space here and in the bucket, whoever stored it",
		Long: `Delete everything of a space: in DRAM, on disk and in the bucket, there also what
other machines have stored. SPACE is the 32 hex digits that 'kvstored spaces'
shows, and that follow the prefix and v1/ in the names of the objects; without it,
give --model and whatever else its prompts were put with. What other machines have
in DRAM or on disk stays there. Nothing is asked: --yes has to be given, or --dry-run,
which only counts. If it is interrupted, call it again. It takes an admin.`,
		Example: `  kvstored purge --model my-model --dtype bf16 --dry-run`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := meantSpace(cmd, args, &space)
			if err != nil {
				return err
			}
			if !yes && !dry {
				return usage(errors.New("this deletes what is stored, for good and for all machines; add --yes if that is meant, or --dry-run"))
			}
			return withClient(cmd.Context(), socket, client.Options{Inline: true}, func(c *client.Client) error {
				p, err := c.Purge(cmd.Context(), id, dry, purgeProgress(cmd.ErrOrStderr()))
				switch {
				case err == nil:
				case p.Known+p.Found > 0:
					return fmt.Errorf("%w; that was after %s known here and %s in the bucket: call it again", err, human.Plural(p.Known, "chunk"), human.Plural(p.Found, "chunk"))
				default:
					return err
				}
				return printPurge(cmd, &p, purgeResult{hex.EncodeToString(id[:]), dry, p.Known, p.Found, p.Bytes}, asJSON)
			})
		},
	}
	socketFlag(cmd, &socket)
	jsonFlag(cmd, &asJSON)
	spaceFlags(cmd, &space)
	cmd.Flags().BoolVar(&yes, "yes", false, "it is meant")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "delete nothing, only count")
	return cmd
}

// meantSpace is the one of args, or that of the flags. The flags' defaults
// alone name none: that would be too easy to do by mistake.
func meantSpace(cmd *cobra.Command, args []string, flags *key.Space) (id key.SpaceID, err error) {
	given := false
	for _, name := range []string{"model", "dtype", "chunk-tokens", "salt"} {
		given = given || cmd.Flags().Changed(name)
	}
	switch {
	case len(args) == 1 && given:
		return id, usage(errors.New("give either the space or --model and its like"))
	case len(args) == 1:
		digits, err := hex.DecodeString(args[0])
		if err != nil || len(digits) != len(id) {
			return id, usage(fmt.Errorf("%q is no space; give its 32 hex digits", args[0]))
		}
		return key.SpaceID(digits), nil
	case !cmd.Flags().Changed("model"):
		return id, usage(errors.New("which space? give its 32 hex digits, as 'kvstored spaces' shows them, or --model and whatever else its prompts were put with"))
	}
	if id, err = flags.ID(); err != nil {
		return id, usage(err)
	}
	return id, nil
}

// purgeProgress tells now and then how far a purge is.
func purgeProgress(w io.Writer) func(client.Purged) {
	last := time.Now()
	return func(p client.Purged) {
		if time.Since(last) >= plainInterval {
			last = time.Now()
			fmt.Fprintf(w, "purge: %s in the bucket, %s so far\n", human.Plural(p.Found, "chunk"), human.Bytes(p.Bytes))
		}
	}
}

func printPurge(cmd *cobra.Command, p *client.Purged, r purgeResult, asJSON bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), r)
	}
	text := "%s known here deleted, and %s (%s) that were in the bucket besides\n"
	if r.DryRun {
		text = "%s known here; %s (%s) in the bucket\n"
	}
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, text, human.Plural(p.Known, "chunk"), human.Plural(p.Found, "chunk"), human.Bytes(p.Bytes))
	if p.Known+p.Found == 0 {
		fmt.Fprintf(w, "nothing is stored for space %s; 'kvstored spaces' lists those there are, also of engines, which --model does not find\n", r.Space)
	}
	return nil
}
