package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/human"
)

// printChunks counts the chunks that were freed or forgotten.
func printChunks(w io.Writer, r admin.Chunks, asJSON bool, done string) error {
	if asJSON {
		return printJSON(w, r)
	}
	_, err := fmt.Fprintf(w, "%s %s\n", human.Plural(r.Chunks, "chunk"), done)
	return err
}

func revokeCommand() *cobra.Command {
	var (
		at          adminFlags
		asJSON, all bool
		connection  uint64
	)
	cmd := &cobra.Command{
		Use:   "revoke {NAME | --all | --connection N}",
		Short: "Free what clients keep from eviction",
		Long: `Free the pins of a name, all pins, or every lease, fill and pin of one
connection. What was freed stays stored until it is evicted. Clients that read
under a lease learn that it was revoked, and recompute. A name of which nothing
is pinned is an error. 'kvstored pins' shows names and connections.`,
		Example: `  kvstored revoke system-prompt
  kvstored revoke --connection 17`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			byConnection := cmd.Flags().Changed("connection")
			if len(args)+count(all)+count(byConnection) != 1 {
				return usage(errors.New("give a name, --all or --connection, and one of them only"))
			}
			what := admin.RevokeRequest{AllPins: all}
			if byConnection {
				what.Connection = &connection
			}
			if len(args) == 1 {
				what.Name = &args[0]
			}
			return at.call(func(c *admin.Client) error {
				var r admin.Chunks
				if err := c.Do(cmd.Context(), "POST", "/v1/revoke", what, &r); err != nil {
					return err
				}
				if err := printChunks(cmd.OutOrStdout(), r, asJSON, "freed"); err != nil {
					return err
				}
				if len(args) == 1 && r.Chunks == 0 {
					return fmt.Errorf("nothing is pinned as %q; 'kvstored pins' lists the names", args[0])
				}
				return nil
			})
		},
	}
	at.add(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.ValidArgsFunction = completePins(&at)
	cmd.Flags().BoolVar(&all, "all", false, "all pins")
	cmd.Flags().Uint64Var(&connection, "connection", 0, "everything this connection holds")
	return cmd
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}
