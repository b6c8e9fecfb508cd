package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/policy"
)

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Show or change what the tiers evict first",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	show := policyAction("show", cobra.NoArgs, func(cmd *cobra.Command, c *admin.Client, _ []string, p *admin.Policies) error {
		return c.Get(cmd.Context(), "/v1/policy", p)
	})
	show.Short, show.Aliases = "Show the policies of the tiers, and those there are", []string{"list"}
	set := policyAction("set TIER NAME", cobra.ExactArgs(2), func(cmd *cobra.Command, c *admin.Client, args []string, p *admin.Policies) error {
		if _, err := tiersOf(args[0]); err != nil {
			return err
		}
		return c.Do(cmd.Context(), "PUT", "/v1/policy", admin.PolicyRequest{Tier: placeName(args[0]), Policy: args[1]}, p)
	})
	set.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return tierNames[:2], cobra.ShellCompDirectiveNoFileComp
		case 1:
			return policy.All(), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	set.Short = "Change the policy of a tier while it runs"
	set.Long = `Change the policy of a tier (cpu or disk) while it runs. No chunk is lost by
that, and what was to go first goes first, as far as the new policy cares.
The configuration file counts again after a restart or a reload.`
	set.Example = "  kvstored policy set cpu s3fifo"
	cmd.AddCommand(show, set)
	return cmd
}

func policyAction(use string, args cobra.PositionalArgs, do func(*cobra.Command, *admin.Client, []string, *admin.Policies) error) *cobra.Command {
	var (
		at     adminFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:  use,
		Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			return at.call(func(c *admin.Client) error {
				var p admin.Policies
				if err := do(cmd, c, args, &p); err != nil {
					return err
				}
				return printPolicies(cmd, p, asJSON)
			})
		},
	}
	at.add(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func printPolicies(cmd *cobra.Command, p admin.Policies, asJSON bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), p)
	}
	var l cli.List
	for _, name := range tierNames {
		if is, ok := p.Tiers[name]; ok {
			l.Row(name, "%s", is)
		}
	}
	l.Row("available", "%s", strings.Join(p.Names, ", "))
	l.Print(cmd.OutOrStdout(), "")
	return nil
}
