package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/replay"
)

type policyResult struct {
	Tiers map[string]string `json:"tiers"` // policy of each
	Names []string          `json:"available"`
}

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Show or change what the tiers evict first",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	show := policyAction("show", cobra.NoArgs, func(cmd *cobra.Command, c *client.Client, _ []string) (client.Policies, error) {
		return c.Policies(cmd.Context())
	})
	show.Short, show.Aliases = "Show the policies of the tiers, and those there are", []string{"list"}
	set := policyAction("set TIER NAME", cobra.ExactArgs(2), func(cmd *cobra.Command, c *client.Client, args []string) (client.Policies, error) {
		t, err := tiersOf(args[0])
		if err != nil {
			return client.Policies{}, err
		}
		return c.SetPolicy(cmd.Context(), t, args[1])
	})
	set.Short = "Change the policy of a tier while it runs"
	set.Long = `Change the policy of a tier (cpu or disk) while it runs. No chunk is lost by
that, and what was to go first goes first, as far as the new policy cares.
The configuration file counts again after a restart or a reload.`
	set.Example = "  kvstored policy set cpu s3fifo"
	cmd.AddCommand(show, set)
	return cmd
}

func policyAction(use string, args cobra.PositionalArgs, do func(*cobra.Command, *client.Client, []string) (client.Policies, error)) *cobra.Command {
	var (
		socket string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:  use,
		Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withClient(cmd.Context(), socket, client.Options{Inline: true}, func(c *client.Client) error {
				p, err := do(cmd, c, args)
				if err != nil {
					return err
				}
				return printPolicies(cmd, p, asJSON)
			})
		},
	}
	socketFlag(cmd, &socket)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func printPolicies(cmd *cobra.Command, p client.Policies, asJSON bool) error {
	r := policyResult{Tiers: make(map[string]string), Names: p.Names}
	var l list
	for i, name := range replay.TierNames {
		if policy, ok := p.Of[client.CPU<<i]; ok {
			r.Tiers[name] = policy
			l.row(name, "%s", policy)
		}
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), r)
	}
	l.row("available", "%s", strings.Join(p.Names, ", "))
	l.print(cmd.OutOrStdout(), "")
	return nil
}

// tiersOf reads names of tiers.
func tiersOf(names ...string) (t client.Tiers, err error) {
next:
	for _, name := range names {
		for i, known := range replay.TierNames {
			if name == known {
				t |= client.CPU << i
				continue next
			}
		}
		return 0, usage(fmt.Errorf("%q is no tier; write %s", name, strings.Join(replay.TierNames[:], ", ")))
	}
	return t, nil
}
