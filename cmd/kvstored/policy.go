package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
)

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Show or change what the tiers evict first",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	show := &cobra.Command{Use: "show", Short: "Show the policies of the tiers, and those there are", Args: cobra.NoArgs}
	asking(show, func(ctx context.Context, c *admin.Client, _ []string) (*admin.Policies, error) {
		var r admin.Config
		err := c.Get(ctx, "/v1/config", &r)
		return r.Policies, err
	}, printPolicies)
	set := &cobra.Command{Use: "set TIER NAME", Args: cobra.ExactArgs(2)}
	asking(set, func(ctx context.Context, c *admin.Client, args []string) (*admin.Policies, error) {
		of, err := tier.Parse(args[0])
		if err != nil {
			return nil, usage(fmt.Errorf("%.80q is no tier with a policy; give cpu (DRAM) or disk", args[0]))
		}
		p := new(admin.Policies)
		return p, c.Do(ctx, "PUT", "/v1/policy", admin.PolicyRequest{Tier: of.String(), Policy: args[1]}, p)
	}, printPolicies)
	set.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return [][]string{tierNames[:2], policy.All(), nil}[min(len(args), 2)], cobra.ShellCompDirectiveNoFileComp
	}
	set.Short = "Change the policy of a tier while it runs"
	set.Long = `Change the policy of a tier (cpu or disk) while it runs. No chunk is lost by
that, and what was to go first goes first, as far as the new policy cares.
The configuration file counts again after a restart or a reload.`
	set.Example = "  kvstored policy set cpu s3fifo"
	cmd.AddCommand(show, set)
	return cmd
}

func printPolicies(w io.Writer, p *admin.Policies) error {
	var l human.List
	for _, name := range tierNames {
		if is, ok := p.Tiers[name]; ok {
			l.Row(name, "%s", is)
		}
	}
	l.Row("available", "%s", strings.Join(p.Names, ", "))
	l.Print(w, "")
	return nil
}
