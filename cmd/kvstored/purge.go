package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/cli"
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
		at               adminFlags
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
which only counts. If it is interrupted, call it again. Where nothing was stored the
exit code is 1. It takes an admin.`,
		Example: `  kvstored purge --model hands-on --dry-run    # what put has stored without --model`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := meantSpace(cmd, args, &space)
			if err != nil {
				return err
			}
			if !yes && !dry {
				return usage(errors.New("this deletes what is stored, for good and for all machines; add --yes if that is meant, or --dry-run"))
			}
			return at.call(func(c *admin.Client) error {
				r := purgeResult{Space: hex.EncodeToString(id[:]), DryRun: dry}
				err := purgeAll(cmd, c, &r)
				switch {
				case err == nil:
				case r.Known+r.Found > 0:
					return fmt.Errorf("%w; that was after %s known here and %s in the bucket: call it again", err, human.Plural(r.Known, "chunk"), human.Plural(r.Found, "chunk"))
				default:
					return err
				}
				return printPurge(cmd, &r, asJSON)
			})
		},
	}
	at.add(cmd)
	jsonFlag(cmd, &asJSON)
	spaceFlags(cmd, &space)
	cmd.ValidArgsFunction = completeSpaces(&at)
	cmd.Flags().BoolVar(&yes, "yes", false, "it is meant")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "delete nothing, only count")
	return cmd
}

// meantSpace is the one of args, or that of the flags. The flags' defaults
// alone name none: that would be too easy to do by mistake.
func meantSpace(cmd *cobra.Command, args []string, flags *key.Space) (id key.SpaceID, err error) {
	given := false
	for _, name := range []string{"model", "dtype", "chunk-tokens", "group", "salt"} {
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

// purgeAll makes one step after another, and tells now and then how far it is.
func purgeAll(cmd *cobra.Command, c *admin.Client, sum *purgeResult) error {
	step := admin.PurgeRequest{Space: sum.Space, DryRun: sum.DryRun}
	for told := time.Now(); ; {
		var p admin.Purged
		if err := c.Do(cmd.Context(), "POST", "/v1/purge", step, &p); err != nil {
			return err
		}
		sum.Known, sum.Found, sum.Bytes = sum.Known+p.Known, sum.Found+p.Found, sum.Bytes+p.Bytes
		if time.Since(told) >= cli.PlainInterval {
			told = time.Now()
			fmt.Fprintf(cmd.ErrOrStderr(), "purge: %s in the bucket, %s so far\n", human.Plural(sum.Found, "chunk"), human.Bytes(sum.Bytes))
		}
		if step.After = p.Next; p.Next == "" {
			return nil
		}
	}
}

func printPurge(cmd *cobra.Command, r *purgeResult, asJSON bool) error {
	var nothing error
	if r.Known+r.Found == 0 {
		nothing = fmt.Errorf("nothing is stored for space %s; 'kvstored spaces' lists those there are, also of engines, which --model does not find", r.Space)
	}
	if asJSON {
		return errors.Join(printJSON(cmd.OutOrStdout(), r), nothing)
	}
	if nothing != nil {
		return nothing
	}
	text := "%s known here deleted, and %s (%s) that were in the bucket besides\n"
	if r.DryRun {
		text = "%s known here; %s (%s) in the bucket\n"
	}
	fmt.Fprintf(cmd.OutOrStdout(), text, human.Plural(r.Known, "chunk"), human.Plural(r.Found, "chunk"), human.Bytes(r.Bytes))
	return nil
}
