package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/whatif"
)

func whatIfCommand() *cobra.Command {
	var (
		at                    adminFlags
		asJSON, last, compute bool
	)
	cmd := &cobra.Command{
		Use:   "whatif",
		Short: "Say what other sizes and policies would hit",
		Long: `Say what DRAM and disk would have hit together, had one of them another size or
another policy: of the tokens that clients have asked for, in a sample of their
sessions that the daemon keeps in bounded memory. The sample is played through the
simulator of 'kvstored replay --simulate', which takes up to a minute of one
processor; --last prints what the daemon has estimated by itself before.
It takes an admin.`,
		Example: `  kvstored whatif
  kvstored whatif --compute`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			method := "POST"
			if last {
				method = "GET"
			}
			var r whatif.Report
			if err := at.call(func(c *admin.Client) error { return c.Do(cmd.Context(), method, "/v1/whatif", admin.None{}, &r) }); err != nil {
				return err
			}
			switch {
			case asJSON:
				return printJSON(cmd.OutOrStdout(), r)
			case r.At.IsZero():
				return &exitError{exitFailure, errors.New("nothing is estimated yet: leave --last out")}
			case r.Requests == 0:
				fmt.Fprintln(cmd.OutOrStdout(), "No client has asked for anything yet.")
				return nil
			}
			printWhatIf(cmd.OutOrStdout(), &r, compute)
			return nil
		},
	}
	at.add(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&last, "last", false, "print the last estimate, and make none")
	cmd.Flags().BoolVar(&compute, "compute", false, "print shares of the prefill compute, not of the tokens")
	return cmd
}

// printWhatIf prints a report within 80 columns.
func printWhatIf(w io.Writer, r *whatif.Report, compute bool) {
	share, of := func(row *whatif.Row) (float64, float64) { return row.Hit, row.HitError }, "tokens hit"
	if compute {
		share, of = func(row *whatif.Row) (float64, float64) { return row.Compute, row.ComputeError }, "prefill compute saved"
	}
	for _, line := range cli.Wrapped(fmt.Sprintf("%s since %s, from %s of the sessions; %s in DRAM or on disk", human.Plural(r.Requests, "request"),
		r.Since.Local().Format(time.DateTime), human.Percent(r.Share, 1), of), cli.Columns) {
		fmt.Fprintln(w, line)
	}
	worst := 0.0
	for i := range r.Rows {
		_, e := share(&r.Rows[i])
		worst = max(worst, e)
	}
	printTierIf(w, r, "cpu", fmt.Sprintf("another DRAM (now %s, %s)", human.Bytes(r.Now.DRAM.Bytes), r.Now.DRAM.Policy), share)
	if r.Now.Disk.Bytes > 0 {
		printTierIf(w, r, "disk", fmt.Sprintf("another disk (now %s, %s)", human.Bytes(r.Now.Disk.Bytes), r.Now.Disk.Policy), share)
	}
	bound, _ := share(r.Bound)
	fmt.Fprintf(w, "\nDRAM without end: %s. Standard error at most %s.\n", human.Percent(bound, 1), human.Percent(worst, 1))
	if r.Dropped > 0 {
		fmt.Fprintf(w, "%s came too fast for the sample.\n", human.Plural(r.Dropped, "request"))
	}
}

// printTierIf prints the rows of one tier, a policy a line.
func printTierIf(w io.Writer, r *whatif.Report, tier, title string, share func(*whatif.Row) (float64, float64)) {
	var t cli.Table
	head, line := []string{title}, []string(nil)
	first := true
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Tier != tier {
			continue
		}
		if first {
			head = append(head, human.Bytes(row.Bytes))
		}
		if line == nil {
			line = []string{row.Policy}
		}
		hit, _ := share(row)
		text := human.Percent(hit, 1)
		if row.Current {
			text = "*" + text
		}
		line = append(line, text)
		if i+1 == len(r.Rows) || r.Rows[i+1].Policy != row.Policy || r.Rows[i+1].Tier != tier {
			if first {
				t.Row(head...)
				first = false
			}
			t.Row(line...)
			line = nil
		}
	}
	fmt.Fprintln(w)
	t.Print(w, "")
}
