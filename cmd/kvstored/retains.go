package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/internal/human"
)

func retainsCommand() *cobra.Command {
	var (
		at     adminFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "retains",
		Short: "List what clients have asked to be kept, and what came of it",
		Long: `List what clients and orchestrators retain: it goes last, and is evicted all the
same where there is nothing else.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return at.call(func(c *admin.Client) error {
				var r admin.Retains
				if err := c.Get(cmd.Context(), "/v1/retains", &r); err != nil {
					return err
				}
				return printRetains(cmd, &r, asJSON)
			})
		},
	}
	at.add(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func printRetains(cmd *cobra.Command, r *admin.Retains, asJSON bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), r)
	}
	w := cmd.OutOrStdout()
	if len(r.Retains) == 0 {
		fmt.Fprintln(w, "nothing is retained")
		return nil
	}
	var t cli.Table
	t.Row("name", "user", "priority", "chunks", "bytes", "ends in")
	for _, h := range r.Retains {
		left := time.Duration(h.ExpiresSeconds * float64(time.Second))
		t.Row(short(h.Name, 22), fmt.Sprint(h.UID), fmt.Sprint(h.Priority), human.Count(h.Chunks), human.Bytes(h.Bytes), human.Duration(left))
		t.Row("  " + h.Space)
	}
	t.Print(w, "")
	if r.LeftOut > 0 {
		fmt.Fprintf(w, "and %s more\n", human.Count(r.LeftOut))
	}
	return nil
}
