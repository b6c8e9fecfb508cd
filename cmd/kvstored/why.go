package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

func whyCommand() *cobra.Command {
	var (
		at           adminFlags
		flags        promptFlags
		lookup, into string
		recent       bool
	)
	cmd := &cobra.Command{
		Use:   "why",
		Short: "Explain why part of a prompt was missed",
		Long: `Explain why part of a prompt was missed, or is missing now. With
--lookup-id, what came of the prompt that an engine asked for last under that name
(engines give the name of their request); --recent lists the last prompts that did
not get all they asked for, by these names. Otherwise a prompt is looked up as it is
now. --space takes the id of a space, as 'kvstored list spaces' lists it, in the place of
--model and its like.
` + promptHelp + `
It takes an admin.`,
		Example: `  kvstored why --text "You are a helpful assistant."
  kvstored why --recent
  kvstored why --lookup-id cmpl-7f3a`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if recent {
				return answer(cmd, &at, func(ctx context.Context, c *admin.Client) (*admin.Why, error) {
					r := new(admin.Why)
					return r, c.Do(ctx, "POST", "/v1/why", admin.WhyRequest{Recent: true}, r)
				}, printMisses)
			}
			if lookup != "" {
				return askWhy(cmd, &at, &admin.WhyRequest{LookupID: lookup}, math.MaxUint64)
			}
			_, tokens, err := flags.prompt(cmd.InOrStdin())
			if err != nil {
				return err
			}
			if into != "" {
				return askWhy(cmd, &at, &admin.WhyRequest{Space: into, Tokens: tokens}, uint64(len(tokens)))
			}
			q, err := whyOf(&flags.space, tokens)
			if err != nil {
				return err
			}
			// The daemon can say what differs of spaces that a client has opened.
			return withClient(cmd.Context(), at.socket, client.Options{Space: &flags.space, Inline: true}, func(*client.Client) error {
				return askWhy(cmd, &at, q, uint64(len(tokens)))
			})
		},
	}
	at.add(cmd)
	jsonFlag(cmd)
	cmd.Flags().StringVar(&lookup, "lookup-id", "", "a prompt by the name that its engine gave it")
	cmd.Flags().StringVar(&into, "space", "", "id of the space, 32 hex digits")
	cmd.Flags().BoolVar(&recent, "recent", false, "list the last prompts that did not get all they asked for")
	flags.add(cmd, "lookup-id", "recent")
	_ = cmd.RegisterFlagCompletionFunc("space", completeSpaces(&at))
	for _, name := range []string{"model", "dtype", "chunk-tokens", "group", "salt", "lookup-id"} {
		cmd.MarkFlagsMutuallyExclusive("space", name)
	}
	return cmd
}

// whyOf asks of a prompt by the hashes of its chunks.
func whyOf(space *key.Space, tokens []uint32) (*admin.WhyRequest, error) {
	b, err := key.NewBuilder(*space)
	if err != nil {
		return nil, usage(err)
	}
	var c key.Chain
	if err := b.Tokens(&c, tokens, key.Options{SaveUnfull: true}); err != nil {
		return nil, usage(err)
	}
	q := &admin.WhyRequest{Space: hex.EncodeToString(c.Space[:])}
	for _, h := range c.Hashes {
		q.Hashes = append(q.Hashes, hex.EncodeToString(h[:]))
	}
	return q, nil
}

// askWhy asks q and prints the answer. A prompt that was given has no more than tokens:
// the daemon, asked by hashes, takes its last chunk for a full one.
func askWhy(cmd *cobra.Command, at *adminFlags, q *admin.WhyRequest, tokens uint64) error {
	return answer(cmd, at, func(ctx context.Context, c *admin.Client) (*admin.Why, error) {
		r := new(admin.Why)
		err := c.Do(ctx, "POST", "/v1/why", q, r)
		for i := range r.Prompts {
			m := &r.Prompts[i]
			m.Partial = m.Partial || m.Tokens > tokens && m.Chunk == m.Chunks-1
			m.Tokens, m.Got = min(m.Tokens, tokens), min(m.Got, tokens)
		}
		return r, err
	}, func(w io.Writer, r *admin.Why) error {
		for i := range r.Prompts {
			printWhy(w, &r.Prompts[i])
		}
		return nil
	})
}

// printMisses lists prompts that missed something, each with a line that says why.
func printMisses(w io.Writer, r *admin.Why) error {
	if len(r.Prompts) == 0 {
		fmt.Fprintln(w, "no prompt that an engine has named missed anything lately; kvstored stats counts the tokens that all prompts missed")
		return nil
	}
	var t human.Table
	t.Row("prompts that missed something", "user", "tokens", "had", "")
	for i := range r.Prompts {
		m := &r.Prompts[i]
		t.Row(short(m.LookupID, 36), fmt.Sprint(m.UID), human.Count(m.Tokens), human.Count(m.Got), human.Percent(float64(m.Got), float64(m.Tokens)))
		t.Row(short("  "+m.Sentence, human.Columns))
	}
	t.Print(w, "")
	return nil
}

func printWhy(w io.Writer, m *admin.Missed) {
	had := fmt.Sprintf("%s of %s tokens", human.Count(m.Got), human.Count(m.Tokens))
	if m.Got >= m.Tokens {
		fmt.Fprintf(w, "all %s tokens were there; space %s %s\n", human.Count(m.Tokens), m.Space, printable(m.Model))
		return
	}
	fmt.Fprintf(w, "%s, up to chunk %s of %s; space %s %s\n", had, human.Count(m.Chunk), human.Count(m.Chunks), m.Space, printable(m.Model))
	fmt.Fprintf(w, "%s: %s\n", m.Reason, m.Sentence)
	if m.Partial {
		fmt.Fprintln(w, "  that chunk is the last one, and not a whole one: it is stored only where its client asks for that")
	}
	for _, n := range m.Nearest {
		fmt.Fprintf(w, "  in space %s %s", n.Space, printable(n.Model))
		for i, d := range n.Differs {
			lead := ", "
			if i == 0 {
				lead = ": "
			}
			fmt.Fprintf(w, "%s%s is %q there and %q here", lead, d.Field, d.There, d.Here)
		}
		fmt.Fprintln(w)
	}
}

// printMissed says why the others were not hits, and what would have helped.
func (v *statsView) printMissed(w io.Writer) {
	if v.Advice == "" {
		return // nothing was asked
	}
	missed := slices.DeleteFunc(slices.Clone(v.Server.Missed.Missed), func(m explain.Total) bool { return m.Reason == explain.NeverStored.String() })
	slices.SortFunc(missed, func(a, b explain.Total) int { return cmp.Compare(b.Tokens, a.Tokens) })
	var t human.Table
	if len(missed) > 0 {
		t.Row("missed, and why", "tokens", "share")
	}
	for _, m := range missed {
		name := m.Reason
		if p, err := tier.Parse(m.Tier); err == nil {
			name += " (" + p.Title() + ")"
		}
		t.Row(name, human.Count(m.Tokens), human.Percent(float64(m.Tokens), float64(v.Server.AskedTokens)))
	}
	t.Print(w, "")
	for _, line := range human.Wrapped(v.Advice, human.Columns) {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w)
}
