package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/internal/human"
)

func pinsCommand() *cobra.Command {
	var (
		at     adminFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "pins",
		Short: "List what is pinned, and which connections hold something",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return at.call(func(c *admin.Client) error {
				var p admin.Pins
				if err := c.Get(cmd.Context(), "/v1/pins", &p); err != nil {
					return err
				}
				return printPins(cmd, &p, asJSON)
			})
		},
	}
	at.add(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func printPins(cmd *cobra.Command, p *admin.Pins, asJSON bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), p)
	}
	w := cmd.OutOrStdout()
	var byName, byConnection cli.Table
	byName.Row("name", "connection", "chunks", "bytes", "ends in")
	for _, p := range p.Pins {
		left := time.Duration(p.ExpiresSeconds * float64(time.Second))
		byName.Row(short(p.Name, 34), fmt.Sprint(p.Connection), human.Count(p.Chunks), human.Bytes(p.Bytes), human.Duration(left))
		byName.Row("  " + p.Space)
	}
	byConnection.Row("client", "connection", "user", "leases, fills", "pins")
	for _, h := range p.Holders {
		byConnection.Row(short(h.Name, 28), fmt.Sprint(h.Connection), fmt.Sprint(h.UID), human.Bytes(h.LeaseBytes), human.Bytes(h.PinBytes))
	}
	if len(p.Pins) == 0 {
		fmt.Fprintln(w, "nothing is pinned")
	} else {
		byName.Print(w, "")
	}
	if len(p.Holders) > 0 {
		fmt.Fprintln(w)
		byConnection.Print(w, "")
	}
	if p.LeftOut > 0 {
		fmt.Fprintf(w, "\n%s more\n", human.Count(p.LeftOut))
	}
	return nil
}
