package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/tier"
)

// forgetFlags are the command line of forget.
type forgetFlags struct {
	at       adminFlags
	prompt   promptFlags
	space    string
	distrust string
	tiers    []string
	dry, yes bool
}

// forgotten counts chunks that are forgotten, or would be.
type forgotten struct {
	DryRun bool `json:"dry_run"`
	admin.Forgotten
}

func forgetCommand() *cobra.Command {
	var f forgetFlags
	cmd := &cobra.Command{
		Use:   "forget {--text PROMPT | --space ID | --tier NAME | --distrust ID} {--yes | --dry-run}",
		Short: "Forget the stored KV of a prompt, of a space, or of whole tiers",
		Long: `Forget what is stored; it must be recomputed then. Nothing is asked: --yes has to be
given, or --dry-run, which only counts. Where nothing was stored of a prompt or a space the
exit code is 1.

Of a prompt all chunks go, in every tier, also those that other prompts share with it.
A prompt that goes on after it is cut short until they are stored again.

--space takes the 32 hex digits that 'kvstored list spaces' and 'kvstored lookup' show,
and that follow the prefix and v1/ in the names of the objects. Everything of it goes, in
DRAM, on disk and in the bucket, there also what other machines have stored; what they
have in DRAM or on disk stays there. If it is interrupted, call it again.

--tier forgets everything in cpu, disk or remote, or in several of them. What is in no
other tier is lost. remote deletes from the bucket, for all machines that share it, but
only what this daemon knows of.

--distrust forgets nothing but that a space is distrusted, as 'kvstored list spaces' says:
an engine has computed anew some of what is stored there, and got other values. Its chunks
are found again. First give engines whose models differ a namespace each, and forget the
space unless it is right. A space, a tier and distrust take an admin.
` + promptHelp,
		Example: `  kvstored forget --text "You are a helpful assistant." --dry-run
  kvstored forget --tier cpu,disk --yes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.at.add(cmd)
	jsonFlag(cmd)
	cmd.Flags().StringVar(&f.space, "space", "", "everything of a space, by its id of 32 hex digits")
	cmd.Flags().StringSliceVar(&f.tiers, "tier", nil, "everything in a tier: cpu, disk or remote")
	cmd.Flags().StringVar(&f.distrust, "distrust", "", "that a space is distrusted, by its id: what is stored there is found again")
	f.prompt.add(cmd, "space", "tier", "distrust")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "it is meant")
	cmd.Flags().BoolVar(&f.dry, "dry-run", false, "forget nothing, only count")
	cmd.MarkFlagsMutuallyExclusive("yes", "dry-run")
	cmd.MarkFlagsMutuallyExclusive("distrust", "dry-run")
	for _, name := range []string{"model", "dtype", "chunk-tokens", "group", "salt"} {
		cmd.MarkFlagsMutuallyExclusive("space", name)
		cmd.MarkFlagsMutuallyExclusive("tier", name)
		cmd.MarkFlagsMutuallyExclusive("distrust", name)
	}
	_ = cmd.RegisterFlagCompletionFunc("space", completeSpaces(&f.at))
	_ = cmd.RegisterFlagCompletionFunc("distrust", completeSpaces(&f.at))
	_ = cmd.RegisterFlagCompletionFunc("tier", cobra.FixedCompletions(tierNames[:], cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (f *forgetFlags) run(cmd *cobra.Command) error {
	for i, name := range f.tiers {
		p, err := tier.Parse(name)
		if err != nil {
			return usage(err)
		}
		f.tiers[i] = p.String()
	}
	if !f.yes && !f.dry {
		if f.distrust != "" {
			return usage(errors.New("this has engines load again what another engine found wrong; add --yes if that is meant"))
		}
		whose := ""
		if f.space != "" || slices.Contains(f.tiers, "remote") {
			whose = " and for all machines that share the bucket"
		}
		return usage(fmt.Errorf("this forgets what is stored, for good%s; add --yes if that is meant, or --dry-run", whose))
	}
	if f.space != "" || f.distrust != "" || len(f.tiers) > 0 {
		return answer(cmd, &f.at, func(ctx context.Context, c *admin.Client) (*forgotten, error) {
			return f.forgetAll(ctx, c, cmd.ErrOrStderr())
		}, f.print)
	}
	prompt, _, err := f.prompt.prompt(cmd.InOrStdin())
	if err != nil {
		return err
	}
	return withClient(cmd.Context(), f.at.socket, client.Options{Inline: true, Space: &f.prompt.space}, func(c *client.Client) error {
		r, err := f.forgetPrompt(cmd.Context(), c, prompt)
		if err != nil {
			return err
		}
		return show(cmd, r, func(w io.Writer) error { return f.print(w, r) })
	})
}

// forgetPrompt forgets a prompt, or counts how many of its leading chunks are stored.
func (f *forgetFlags) forgetPrompt(ctx context.Context, c *client.Client, p client.Prompt) (*forgotten, error) {
	if f.dry {
		m, err := c.Lookup(ctx, p, 0)
		return &forgotten{true, admin.Forgotten{Chunks: uint64(m.Total.Chunks)}}, err
	}
	n, err := c.DeletePrompt(ctx, p)
	return &forgotten{false, admin.Forgotten{Chunks: n}}, err
}

// forgetAll forgets tiers, or a space: one step after another, and tells now and then how
// far it is.
func (f *forgetFlags) forgetAll(ctx context.Context, c *admin.Client, progress io.Writer) (*forgotten, error) {
	sum, step := &forgotten{DryRun: f.dry}, admin.ForgetRequest{Tiers: f.tiers, Space: cmp.Or(f.distrust, f.space), Distrust: f.distrust != "", DryRun: f.dry}
	for told := time.Now(); ; {
		var p admin.Forgotten
		if err := c.Do(ctx, "POST", "/v1/forget", step, &p); err != nil {
			if sum.Chunks+sum.Found > 0 {
				err = fmt.Errorf("%w; that was after %s known here and %s in the bucket: call it again", err, human.Plural(sum.Chunks, "chunk"), human.Plural(sum.Found, "chunk"))
			}
			return nil, err
		}
		sum.Chunks, sum.Found, sum.Bytes, sum.Tiers = sum.Chunks+p.Chunks, sum.Found+p.Found, sum.Bytes+p.Bytes, p.Tiers
		if time.Since(told) >= human.PlainInterval {
			told = time.Now()
			fmt.Fprintf(progress, "forget: %s in the bucket, %s so far\n", human.Plural(sum.Found, "chunk"), human.Bytes(sum.Bytes))
		}
		if step.After = p.Next; p.Next == "" {
			return sum, nil
		}
	}
}

func (f *forgetFlags) print(w io.Writer, r *forgotten) error {
	done := "forgotten"
	if r.DryRun {
		done = "would be forgotten"
	}
	switch {
	case f.distrust != "":
		_, err := fmt.Fprintf(w, "space %s is trusted again\n", f.distrust)
		return err
	case r.Chunks+r.Found == 0 && f.space != "":
		return fmt.Errorf("nothing is stored for space %s; 'kvstored list spaces' lists those there are", f.space)
	case r.Chunks == 0 && len(f.tiers) == 0 && f.space == "":
		return errors.New(nothingStored)
	}
	text := human.Plural(r.Chunks, "chunk") + " " + done
	switch {
	case f.space != "" && r.DryRun:
		text = fmt.Sprintf("%s known here; %s (%s) in the bucket", human.Plural(r.Chunks, "chunk"), human.Plural(r.Found, "chunk"), human.Bytes(r.Bytes))
	case f.space != "":
		text = fmt.Sprintf("%s known here forgotten, and %s (%s) that were in the bucket besides", human.Plural(r.Chunks, "chunk"), human.Plural(r.Found, "chunk"), human.Bytes(r.Bytes))
	case r.Tiers != nil:
		var each []string
		for _, name := range f.tiers {
			each = append(each, fmt.Sprintf("%s: %s %s", name, human.Plural(r.Tiers[name], "chunk"), done))
		}
		text = strings.Join(each, "\n")
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// nothingStored is said where a prompt has no chunks, or its space is not the one meant.
const nothingStored = "nothing is stored for this prompt; were model, dtype, chunk tokens and salt the same?"
