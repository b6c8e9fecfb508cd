package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
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

// perTier is counts by the names of tiers.
func perTier(counts client.TierCounts) map[string]lookupCount {
	all := make(map[string]lookupCount)
	for i, n := range counts {
		all[tierNames[i]] = lookupCount{n.Chunks, n.Tokens}
	}
	return all
}

func lookupCommand() *cobra.Command {
	var (
		socket string
		flags  promptFlags
		groups []string
		up     promotion
	)
	cmd := &cobra.Command{
		Use:   "lookup",
		Short: "Show how much of a prompt is stored, and where",
		Long: `Show how long a prefix of a prompt is stored, and in which tier. Nothing is
moved and nothing is kept from being evicted. The bucket, if there is one, is not
asked: of it only what this daemon knows already is counted. get looks there, and
--promote, which brings the prefix up to DRAM when nobody else loads; a prompt can be
given by the --lookup-id of an earlier prefetch then.

With --groups it is the longest prefix that all groups of a hybrid model can use:
the space of the prompt has the layers of full attention, and --group names its
group, if it has one; --groups names the others, as swa=window:1024,mamba=state.
` + promptHelp,
		Example: `  kvstored lookup --text "You are a helpful assistant."`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if up.on || up.lookupID != "" {
				return up.run(cmd, socket, &flags)
			}
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
					Tiers:    perTier(m.Tiers),
					LookupUS: float64(time.Since(start)) / float64(time.Microsecond),
					Grouped:  found,
					Missing:  missingOf(&m),
				}
				return show(cmd, r, func(w io.Writer) error {
					printLookup(w, &r, &m)
					if r.MatchedTokens < uint64(r.PromptTokens) {
						return mentionBucket(cmd.Context(), w, c)
					}
					return nil
				})
			})
		},
	}
	socketFlag(cmd, &socket)
	jsonFlag(cmd)
	up.add(cmd)
	flags.add(cmd, "lookup-id")
	cmd.Flags().StringSliceVar(&groups, "groups", nil, "the other groups of a hybrid model: NAME=full, NAME=window:TOKENS, NAME=local:TOKENS or NAME=state")
	return cmd
}

// mentionBucket says that there may be more of a prompt than a lookup finds,
// where there is a remote tier.
func mentionBucket(ctx context.Context, w io.Writer, c *client.Client) error {
	_, v, err := readStats(ctx, c)
	switch {
	case errors.Is(err, client.ErrDenied):
		return nil // which tiers there are is not this user's to know
	case err != nil:
		return err
	}
	if _, ok := v.Store.Tiers[tier.Remote]; ok {
		fmt.Fprintln(w, "the bucket is not asked; get and --promote look there")
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
		fmt.Fprintln(w, "were model, dtype, chunk tokens, group and salt those it was stored with? 'kvstored list spaces' lists the spaces")
	}
}

func printLookup(w io.Writer, r *lookupResult, m *client.Match) {
	var t human.Table
	t.Row("", "chunks", "tokens", "share")
	for i, n := range m.Tiers {
		if n.Chunks > 0 || i < 2 {
			t.Row(tier.Place(i).Title(), human.Count(n.Chunks), human.Count(n.Tokens), human.Percent(float64(n.Tokens), float64(r.PromptTokens)))
		}
	}
	t.Row("stored", human.Count(r.MatchedChunks), human.Count(r.MatchedTokens), human.Percent(float64(r.MatchedTokens), float64(r.PromptTokens)))
	t.Row("prompt", human.Count(r.PromptChunks), human.Count(r.PromptTokens), "")
	t.Print(w, "")
	if r.Grouped != nil {
		printGroups(w, r.Grouped)
	}
	if r.Missing != nil {
		printMissing(w, r.Missing)
	}
	fmt.Fprintf(w, "answered in %s; space %s\n", human.Micros(r.LookupUS), r.Space)
}

// namedLengths is how many usable lengths a lookup prints.
const namedLengths = 16

// groupFlag is one group of a hybrid model beside that of the prompt's space.
type groupFlag struct {
	name   string // as in the space
	kind   client.GroupKind
	tokens int
}

// parseGroups reads texts such as swa=window:1024 and mamba=state.
func parseGroups(texts []string) (out []groupFlag, err error) {
	kinds := map[string]client.GroupKind{
		"full": client.FullGroup, "window": client.WindowGroup, "local": client.LocalGroup, "state": client.StateGroup,
	}
	seen := map[string]bool{}
	for _, text := range texts {
		name, what, _ := strings.Cut(text, "=")
		kind, tokens, counted := strings.Cut(what, ":")
		g := groupFlag{name: name}
		var known bool
		if g.kind, known = kinds[kind]; !known || name == "" {
			return nil, fmt.Errorf("%q: write NAME=full, NAME=window:TOKENS, NAME=local:TOKENS or NAME=state", text)
		}
		if seen[name] {
			return nil, fmt.Errorf("%q: group %s is named twice", text, name)
		}
		seen[name] = true
		if limited := g.kind == client.WindowGroup || g.kind == client.LocalGroup; limited != counted {
			return nil, fmt.Errorf("%q: a window and a local group have tokens behind a colon, others have none", text)
		}
		if counted {
			if g.tokens, err = strconv.Atoi(tokens); err != nil || g.tokens < 1 || g.tokens > 1<<30 {
				return nil, fmt.Errorf("%q: use 1 to %d tokens", text, 1<<30)
			}
		}
		out = append(out, g)
	}
	return out, nil
}

// groupsResult is what a lookup with groups adds.
type groupsResult struct {
	RunTokens int64         `json:"run_tokens"` // that the full groups have
	Lengths   []uint32      `json:"usable_tokens"`
	Groups    []groupResult `json:"groups"`
}

type groupResult struct {
	Group  string         `json:"group"`
	Kind   string         `json:"kind"`
	Chunks int            `json:"chunks"` // that the longest usable prefix needs
	Tiers  map[string]int `json:"tiers"`
	Lacks  bool           `json:"lacks"` // something at run_tokens
}

// lookupGroups is a lookup of a prompt in its own space, which is full, and those of other
// groups, if there are any.
func lookupGroups(ctx context.Context, c *client.Client, p client.Prompt, own key.Space, flags []groupFlag) (client.Match, *groupsResult, error) {
	if len(flags) == 0 {
		m, err := c.LookupWith(ctx, p, client.LookupOptions{Why: true})
		return m, nil, err
	}
	groups, out := []client.Group{{Space: c.Space()}}, &groupsResult{Lengths: []uint32{}}
	names := []groupFlag{{name: own.Group}}
	for _, g := range flags {
		space := own
		space.Group = g.name
		opened, err := c.OpenSpace(ctx, space)
		if err != nil {
			return client.Match{}, nil, err
		}
		groups, names = append(groups, client.Group{Space: opened, Kind: g.kind, Tokens: g.tokens}), append(names, g)
	}
	m, err := c.LookupWith(ctx, p, client.LookupOptions{Groups: groups, Lengths: namedLengths, Why: true})
	if err != nil || m.Grouped == nil {
		return m, nil, err
	}
	out.RunTokens, out.Lengths = m.Grouped.Run, append(out.Lengths, m.Grouped.Lengths...)
	for i, need := range m.Grouped.Needs {
		r := groupResult{
			Group: names[i].name, Kind: kindText(names[i].kind, names[i].tokens),
			Chunks: need.Chunks, Tiers: map[string]int{}, Lacks: m.Grouped.Lacks>>i&1 != 0,
		}
		for t, n := range need.Tiers {
			r.Tiers[tierNames[t]] = n
		}
		out.Groups = append(out.Groups, r)
	}
	return m, out, nil
}

func kindText(kind client.GroupKind, tokens int) string {
	text := [...]string{"full", "window", "local", "state"}[kind]
	if tokens > 0 {
		text += " " + human.Count(tokens)
	}
	return text
}

func printGroups(w io.Writer, g *groupsResult) {
	var t human.Table
	t.Row("group", "kind", "chunks needed", "DRAM", "disk", "remote", "")
	for _, r := range g.Groups {
		name, lacks := cmp.Or(r.Group, `""`), ""
		if r.Lacks {
			lacks = fmt.Sprintf("lacks what %s tokens need", human.Count(g.RunTokens))
		}
		row := []string{name, r.Kind, human.Count(r.Chunks)}
		for _, tier := range tierNames {
			row = append(row, human.Count(r.Tiers[tier]))
		}
		t.Row(append(row, lacks)...)
	}
	t.Print(w, "")
	if len(g.Lengths) > 0 {
		texts := make([]string, len(g.Lengths))
		for i, n := range g.Lengths {
			texts[i] = human.Count(n)
		}
		fmt.Fprintf(w, "usable at %s tokens\n", strings.Join(texts, ", "))
	}
}

// promotion is what lookup --promote is given.
type promotion struct {
	on       bool
	lookupID string
	wait     time.Duration
}

func (p *promotion) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.on, "promote", false, "bring the prefix up to DRAM")
	cmd.Flags().StringVar(&p.lookupID, "lookup-id", "", "with --promote: what an earlier prefetch was called")
	cmd.Flags().DurationVar(&p.wait, "wait", time.Minute, "with --promote: how long it may take")
}

type promotedResult struct {
	MatchedChunks uint32                 `json:"matched_chunks"`
	ReadyChunks   uint32                 `json:"ready_chunks"` // in DRAM now
	ReadyTokens   uint64                 `json:"ready_tokens"`
	Tiers         map[string]lookupCount `json:"tiers"` // where they came from
	Done          bool                   `json:"done"`
	Reason        string                 `json:"reason"`
}

// run brings the stored prefix of a prompt up to DRAM.
func (p *promotion) run(cmd *cobra.Command, socket string, flags *promptFlags) error {
	switch {
	case !p.on:
		return usage(errors.New("--lookup-id goes with --promote"))
	case p.wait < time.Millisecond:
		return usage(fmt.Errorf("--wait %v: use 1ms or more; what is not done then is given up", p.wait))
	}
	o := client.Options{Inline: true}
	call := func(c *client.Client) (client.Match, client.State, error) {
		return c.WarmNamed(cmd.Context(), p.lookupID, 0, p.wait)
	}
	if p.lookupID == "" {
		prompt, _, err := flags.prompt(cmd.InOrStdin())
		if err != nil {
			return err
		}
		o.Space = &flags.space
		call = func(c *client.Client) (client.Match, client.State, error) {
			return c.Warm(cmd.Context(), prompt, 0, p.wait)
		}
	}
	return withClient(cmd.Context(), socket, o, func(c *client.Client) error {
		m, st, err := call(c)
		if err != nil {
			return err
		}
		return show(cmd, promoted(&m, &st), func(w io.Writer) error {
			printPromoted(w, &m, &st)
			switch {
			case !st.Done:
				return fmt.Errorf("not done within %v; raise --wait", p.wait)
			case st.Reason != client.Complete:
				return errors.New("ended by " + st.Reason.String())
			}
			return nil
		})
	})
}

func promoted(m *client.Match, st *client.State) promotedResult {
	return promotedResult{
		MatchedChunks: m.Total.Chunks, ReadyChunks: st.Ready.Chunks, ReadyTokens: st.Ready.Tokens,
		Tiers: perTier(st.Tiers), Done: st.Done, Reason: st.Reason.String(),
	}
}

func printPromoted(w io.Writer, m *client.Match, st *client.State) {
	var t human.Table
	t.Row("", "chunks", "tokens")
	t.Row("were in DRAM", human.Count(st.Tiers[0].Chunks), human.Count(st.Tiers[0].Tokens))
	for i := 1; i < len(st.Tiers); i++ {
		if n := st.Tiers[i]; n.Chunks > 0 || i < 2 {
			t.Row("came from "+tier.Place(i).Title(), human.Count(n.Chunks), human.Count(n.Tokens))
		}
	}
	t.Row("in DRAM now", human.Count(st.Ready.Chunks), human.Count(st.Ready.Tokens))
	t.Row("stored", human.Count(max(m.Total.Chunks, st.Ready.Chunks)), human.Count(max(m.Total.Tokens, st.Ready.Tokens)))
	t.Print(w, "")
}
