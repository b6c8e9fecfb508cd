package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/key"
)

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
		m, err := client.LookupWhy(ctx, c, p, nil, 0)
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
	m, err := client.LookupLengths(ctx, c, p, groups, nil, 0, namedLengths)
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
	var t cli.Table
	t.Row("group", "kind", "chunks needed", "DRAM", "disk", "remote", "")
	for _, r := range g.Groups {
		name, lacks := r.Group, ""
		if name == "" {
			name = `""`
		}
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
