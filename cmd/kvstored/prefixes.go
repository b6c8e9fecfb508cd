package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/human"
)

// mostListed is how many prefixes are printed at most.
const mostListed = 100_000

func prefixesCommand() *cobra.Command {
	var (
		q     admin.PrefixesRequest
		all   bool
		limit int
	)
	var orders []string
	for _, o := range explain.Orders() {
		orders = append(orders, string(o))
	}
	cmd := &cobra.Command{
		Use:   "prefixes [PREFIX]",
		Short: "List what is stored: prefixes by size, heat, age or depth",
		Long: `List what is stored, as prefixes: the chunks from behind one branch of prompts to
the next, named by the hash of the first. Without PREFIX those that begin prompts,
else those that go on behind it; the first digits of its hash do. All but depth
counts what goes on behind a prefix too. Bytes are by the mean of the space; DRAM
and disk are shares of the bytes. Heat is the requests that found it, each counting
half after ten minutes; idle is since the last one, or since it was stored.
It takes an admin.`,
		Example: `  kvstored list prefixes
  kvstored list prefixes --by heat --all --limit 10`,
		Args: cobra.MaximumNArgs(1),
	}
	at := asking(cmd, func(ctx context.Context, c *admin.Client, args []string) (*admin.Prefixes, error) {
		switch {
		case !slices.Contains(orders, q.By):
			return nil, usage(fmt.Errorf("--by %q: give one of %s", q.By, strings.Join(orders, ", ")))
		case limit < 1 || limit > mostListed:
			return nil, usage(fmt.Errorf("--limit %d: give a number from 1 to %d", limit, mostListed))
		case len(args) == 1 && all:
			return nil, usage(fmt.Errorf("--all lists prefixes of any depth already; leave out %.40q", args[0]))
		case len(args) == 1:
			q.Under = args[0]
		}
		q.All = strconv.FormatBool(all)
		return listPrefixes(ctx, c, &q, limit)
	}, func(w io.Writer, r *admin.Prefixes) error {
		if len(r.Prefixes) == 0 {
			printNothing(w, &q)
			return nil
		}
		printPrefixes(w, r)
		return nil
	})
	cmd.Flags().StringVar(&q.Space, "space", "", "only of this one, by its id of 32 hex digits")
	cmd.Flags().StringVar(&q.By, "by", string(explain.ByBytes), "which come first: "+strings.Join(orders, ", "))
	cmd.Flags().BoolVar(&all, "all", false, "prefixes of any depth")
	cmd.Flags().IntVar(&limit, "limit", 20, "how many")
	cmd.ValidArgsFunction = completePrefixes(at)
	_ = cmd.RegisterFlagCompletionFunc("space", completeSpaces(at))
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(orders, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// listPrefixes asks for so many prefixes, in pages.
func listPrefixes(ctx context.Context, c *admin.Client, q *admin.PrefixesRequest, limit int) (*admin.Prefixes, error) {
	all := admin.Prefixes{Prefixes: []admin.Prefix{}}
	for {
		var page admin.Prefixes
		n := min(limit-len(all.Prefixes), 1000)
		if err := c.Get(ctx, "/v1/prefixes", &page, "space", q.Space, "under", q.Under, "by", q.By, "all", q.All, "limit", strconv.Itoa(n), "after", all.Next); err != nil {
			return nil, err
		}
		page.Prefixes = append(all.Prefixes, page.Prefixes...)
		if all = page; all.Next == "" || len(all.Prefixes) >= limit {
			return &all, nil
		}
	}
}

// printNothing says that a list is empty, and what else to look at.
func printNothing(w io.Writer, q *admin.PrefixesRequest) {
	switch {
	case q.Under != "":
		fmt.Fprintf(w, "nothing goes on behind %s\n", printable(q.Under))
	case q.Space != "":
		fmt.Fprintf(w, "nothing is stored in space %s; 'kvstored list spaces' lists those there are\n", printable(q.Space))
	default:
		fmt.Fprintln(w, "nothing is stored")
	}
}

func printPrefixes(w io.Writer, r *admin.Prefixes) {
	var t human.Table
	t.Row("prefix", "depth", "chunks", "bytes", "DRAM", "disk", "heat", "idle", "behind")
	space := ""
	for i := range r.Prefixes {
		p := &r.Prefixes[i]
		if p.Space != space {
			space = p.Space
			t.Row(short(space+" "+p.Model, 80))
		}
		idle := "-"
		if p.IdleSeconds != nil {
			idle = ago(*p.IdleSeconds)
		}
		depth := human.Count(p.Depth)
		if p.Detached {
			depth = "?"
		}
		t.Row("  "+p.Hash[:10], depth, human.Count(p.Chunks), human.Bytes(p.Bytes), share(p.DRAMBytes, p.Bytes), share(p.DiskBytes, p.Bytes), fmt.Sprintf("%.1f", p.Heat), idle, human.Count(p.Branches))
	}
	t.Print(w, "")
	if r.Next != "" {
		fmt.Fprintln(w, "and more: see --limit")
	}
	if r.LeftOut > 0 {
		fmt.Fprintf(w, "%s of chunks are not looked at\n", human.Plural(r.LeftOut, "stretch"))
	}
}

// share is a part as a percentage of at most 100: parts are estimates.
func share(part, whole int64) string {
	if part == 0 {
		return "-"
	}
	return human.Percent(float64(min(part, whole)), float64(whole))
}
