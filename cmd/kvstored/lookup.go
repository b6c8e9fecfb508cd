package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/wire"
)

type lookupResult struct {
	Space         string                 `json:"space"`
	PromptTokens  int                    `json:"prompt_tokens"`
	PromptChunks  int                    `json:"prompt_chunks"`
	MatchedTokens uint64                 `json:"matched_tokens"`
	MatchedChunks uint32                 `json:"matched_chunks"`
	Tiers         map[string]lookupCount `json:"tiers"`
	LookupUS      float64                `json:"lookup_us"`
	Grouped       *groupsResult          `json:"grouped,omitempty"`
	Missing       *lookupMissing         `json:"missing,omitempty"` // absent where all is there
}

// lookupMissing is why the first chunk that is missing is not there.
type lookupMissing struct {
	Chunk  uint32  `json:"chunk"`
	Reason string  `json:"reason"`
	Tier   string  `json:"tier"`
	Ago    *uint32 `json:"ago_seconds"` // since it left; null where that is not known
}

type lookupCount struct {
	Chunks uint32 `json:"chunks"`
	Tokens uint64 `json:"tokens"`
}

func lookupCommand() *cobra.Command {
	var (
		socket string
		asJSON bool
		flags  promptFlags
		groups []string
	)
	cmd := &cobra.Command{
		Use:   "lookup",
		Short: "Show how much of a prompt is stored, and where",
		Long: `Show how long a prefix of a prompt is stored, and in which tier. Nothing is
moved and nothing is kept from being evicted. The bucket, if there is one, is not
asked: of it only what this daemon knows already is counted. warm and get look
there.

With --groups it is the longest prefix that all groups of a hybrid model can use:
the space of the prompt has the layers of full attention, and --group names its
group, if it has one; --groups names the others, as swa=window:1024,mamba=state.
` + promptHelp,
		Example: `  kvstored lookup --text "You are a helpful assistant."`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			prompt, tokens, err := flags.prompt(cmd.InOrStdin())
			if err != nil {
				return err
			}
			others, err := parseGroups(groups)
			if err != nil {
				return usage(fmt.Errorf("--groups: %w", err))
			}
			return withClient(cmd.Context(), socket, client.Options{Space: &flags.space, Inline: true}, func(c *client.Client) error {
				start := time.Now()
				m, found, err := lookupGroups(cmd.Context(), c, prompt, flags.space, others)
				if err != nil {
					return err
				}
				id := c.Space().ID()
				r := lookupResult{
					Space:        hex.EncodeToString(id[:]),
					PromptTokens: len(tokens), PromptChunks: flags.chunks(tokens),
					MatchedTokens: m.Total.Tokens, MatchedChunks: m.Total.Chunks,
					Tiers:    make(map[string]lookupCount),
					LookupUS: float64(time.Since(start)) / float64(time.Microsecond),
					Grouped:  found,
				}
				r.Missing = missingOf(&m)
				for i, n := range m.Tiers {
					r.Tiers[tierNames[i]] = lookupCount{n.Chunks, n.Tokens}
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), r)
				}
				printLookup(cmd, &r, &m)
				if r.MatchedTokens < uint64(r.PromptTokens) {
					return mentionBucket(cmd.Context(), cmd.OutOrStdout(), c)
				}
				return nil
			})
		},
	}
	socketFlag(cmd, &socket)
	jsonFlag(cmd, &asJSON)
	flags.add(cmd)
	cmd.Flags().StringSliceVar(&groups, "groups", nil, "the other groups of a hybrid model: NAME=full, NAME=window:TOKENS, NAME=local:TOKENS or NAME=state")
	return cmd
}

// mentionBucket says that there may be more of a prompt than a lookup finds,
// where there is a remote tier.
func mentionBucket(ctx context.Context, w io.Writer, c *client.Client) error {
	tiers, err := tiersOfDaemon(ctx, c)
	if errors.Is(err, client.ErrDenied) {
		return nil // which tiers there are is not this user's to know
	}
	if err != nil {
		return err
	}
	if _, ok := tiers["remote"]; ok {
		fmt.Fprintln(w, "the bucket is not asked; warm and get look there")
	}
	return nil
}

// missingOf is what the daemon says of the first chunk that is missing.
func missingOf(m *client.Match) *lookupMissing {
	if m.Missing == nil {
		return nil
	}
	out := &lookupMissing{Chunk: m.Total.Chunks, Reason: m.Missing.Code.String(), Tier: m.Missing.Tier.String()}
	if m.Missing.Ago != client.NotKnown {
		out.Ago = &m.Missing.Ago
	}
	return out
}

// lookupSayings are the reasons of a lookup in words, with the tier behind them.
var lookupSayings = map[string]string{
	"never_stored": "was not stored, or that is not remembered", "evicted": "was evicted from", "declined": "was declined by", "not_found": "was deleted from",
	"other_space": "is stored in another space only", "tier_off": "is in a tier that is off:", "corrupt": "had wrong bytes in", "gap": "was lost by",
	"pending": "is being written", "starting": "may be in a tier that is still being read:", "exists": "is in", "group": "is of no use: another group of the model lacks something",
}

func printMissing(w io.Writer, m *lookupMissing) {
	text := cmp.Or(lookupSayings[m.Reason], m.Reason)
	if m.Tier != "" {
		text += " " + m.Tier
	}
	if m.Ago != nil {
		text += fmt.Sprintf(" %s ago", ago(float64(*m.Ago)))
	}
	fmt.Fprintf(w, "chunk %s, the first that is missing, %s\n", human.Count(m.Chunk), text)
	if m.Chunk == 0 && m.Reason == wire.CodeNeverStored.String() {
		fmt.Fprintln(w, "were model, dtype, chunk tokens, group and salt those it was stored with? 'kvstored spaces' lists the spaces")
	}
}

func printLookup(cmd *cobra.Command, r *lookupResult, m *client.Match) {
	var t cli.Table
	t.Row("", "chunks", "tokens", "share")
	for i, n := range m.Tiers {
		if n.Chunks > 0 || i < 2 {
			t.Row(tierTitles[i], human.Count(n.Chunks), human.Count(n.Tokens), human.Percent(float64(n.Tokens), float64(r.PromptTokens)))
		}
	}
	t.Row("stored", human.Count(r.MatchedChunks), human.Count(r.MatchedTokens), human.Percent(float64(r.MatchedTokens), float64(r.PromptTokens)))
	t.Row("prompt", human.Count(r.PromptChunks), human.Count(r.PromptTokens), "")
	t.Print(cmd.OutOrStdout(), "")
	if r.Grouped != nil {
		printGroups(cmd.OutOrStdout(), r.Grouped)
	}
	if r.Missing != nil {
		printMissing(cmd.OutOrStdout(), r.Missing)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "answered in %s; space %s\n", human.Micros(r.LookupUS), r.Space)
}
