package main

import (
	"cmp"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/lab/simulate"
	"github.com/kvstored/kvstored/lab/whatif"
)

func whatIfCommand() *cobra.Command {
	var (
		socket, own     string
		asJSON, compute bool
	)
	cmd := &cobra.Command{
		Use:   "whatif",
		Short: "Say what other sizes and policies would hit",
		Long: `Say what DRAM and disk would have hit together, had one of them another size or
another policy: of the tokens that clients have asked for, in a sample of their
sessions that the daemon keeps in bounded memory. The sample is played through the
simulator here, which takes up to a minute of one processor.

Beside each policy stands what the daemon really hit in the same time. Where that
differs from the estimate for the tiers as they are by more than 5 points, there is
no advice, and the exit code is 1. It takes an admin.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := new(explain.Sample)
			c := admin.NewClient(cmp.Or(own, config.AdminSocketOf(socket)), 0)
			defer c.Close()
			if err := c.Get(cmd.Context(), "/v1/sample", s); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			bar := human.NewProgress(cmd.ErrOrStderr(), "whatif", whatif.Rows(s))
			r, err := whatif.Play(ctx, s, simulate.DefaultPrefillDepth, func(row *whatif.Row) {
				bar.Step(func() string { return fmt.Sprintf("%s of %s", row.Policy, row.Tier) })
			})
			bar.End()
			if err != nil {
				return err
			}
			advice, off := r.Advice()
			if asJSON {
				if err := printJSON(cmd.OutOrStdout(), r); err != nil {
					return err
				}
				return off
			}
			if r.Requests == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "No client has asked for anything yet.")
				return nil
			}
			printWhatIf(cmd.OutOrStdout(), r, compute)
			if advice != "" {
				fmt.Fprintln(cmd.OutOrStdout(), advice+".")
			}
			return off
		},
	}
	socketFlag(cmd, &socket)
	cmd.Flags().StringVar(&own, "admin-socket", "", "the daemon's admin.socket, where that is not the other with .admin behind it")
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&compute, "compute", false, "print shares of the prefill compute, not of the tokens")
	return cmd
}

// printWhatIf prints a report within 80 columns.
func printWhatIf(w io.Writer, r *whatif.Report, compute bool) {
	share, of := func(row *whatif.Row) (float64, float64) { return row.Hit, row.HitError }, "tokens hit"
	if compute {
		share, of = func(row *whatif.Row) (float64, float64) { return row.Compute, row.ComputeError }, "prefill compute saved"
	}
	for _, line := range human.Wrapped(fmt.Sprintf("%s since %s, from %s of the sessions; %s in DRAM or on disk. Measured: %s of %s tokens, of all sessions.", human.Plural(r.Requests, "request"),
		r.Since.Local().Format(time.DateTime), human.Percent(r.Share, 1), of, human.Percent(r.Measured, 1), human.Count(r.MeasuredTokens)), human.Columns) {
		fmt.Fprintln(w, line)
	}
	worst := 0.0
	for i := range r.Rows {
		_, e := share(&r.Rows[i])
		worst = max(worst, e)
	}
	printTierIf(w, r, "cpu", fmt.Sprintf("DRAM (%s, %s)", human.Bytes(r.Now.DRAM.Bytes), r.Now.DRAM.Policy), share)
	if r.Now.Disk.Bytes > 0 {
		printTierIf(w, r, "disk", fmt.Sprintf("disk (%s, %s)", human.Bytes(r.Now.Disk.Bytes), r.Now.Disk.Policy), share)
	}
	bound, _ := share(r.Bound)
	fmt.Fprintf(w, "\nDRAM without end: %s. Standard error of sampling at most %s.\n", human.Percent(bound, 1), human.Percent(worst, 1))
	if r.Dropped > 0 {
		fmt.Fprintf(w, "%s came too fast for the sample.\n", human.Plural(r.Dropped, "request"))
	}
}

// printTierIf prints the rows of one tier, a policy a line, each with what was measured.
func printTierIf(w io.Writer, r *whatif.Report, tier, title string, share func(*whatif.Row) (float64, float64)) {
	var t human.Table
	head := []string{title}
	lines, order := make(map[string][]string), []string(nil)
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Tier != tier {
			continue
		}
		if lines[row.Policy] == nil {
			lines[row.Policy], order = []string{row.Policy}, append(order, row.Policy)
		}
		if len(order) == 1 {
			head = append(head, human.Bytes(row.Bytes))
		}
		hit, _ := share(row)
		text := human.Percent(hit, 1)
		if row.Current {
			text = "*" + text
		}
		lines[row.Policy] = append(lines[row.Policy], text)
	}
	t.Row(append(head, "measured")...)
	for _, policy := range order {
		t.Row(append(lines[policy], human.Percent(r.Measured, 1))...)
	}
	fmt.Fprintln(w)
	t.Print(w, "")
}
