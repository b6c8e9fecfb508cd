package feed

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/kvstored/kvstored/router/event"
	"github.com/kvstored/kvstored/router/index"
)

// kinds are what groups of layers are called by engines; others are not counted.
var kinds = map[string]index.Kind{
	"": index.Full, "full_attention": index.Full, "mla_attention": index.Full, "sink_full_attention": index.Full,
	"sliding_window": index.Window, "sliding_window_mla": index.Window, "chunked_local_attention": index.Local, "mamba": index.State,
}

// ErrGroup says that a group is another than the model's configuration has it.
var ErrGroup = errors.New("another group than is configured")

// grouped compares the group of a stored event with the one that is configured.
func (p *Publisher) grouped(e *event.Event) error {
	if len(p.model.Groups) == 0 || p.w.Chunks || e.GroupKind == "" {
		return nil
	}
	g, kind := p.model.Groups[e.Group], kinds[e.GroupKind]
	if kind == g.Kind && (kind != index.Window || e.Window == 0 || e.Window == g.Tokens) {
		return nil
	}
	return fmt.Errorf("events of worker %s: %w: group %d is %.40s of %d tokens, and %q in route.models", p.w.Worker, ErrGroup, e.Group, e.GroupKind, e.Window, textOf(g))
}

// textOf is a group as the configuration has it.
func textOf(g index.Group) string {
	if g.Tokens == 0 {
		return g.Kind.String()
	}
	return fmt.Sprintf("%s %d", g.Kind, g.Tokens)
}

// ParseGroups reads groups as the configuration has them: a kind, and the tokens of
// a window or a local group behind it.
func ParseGroups(texts []string) (all []index.Group, err error) {
	for _, text := range texts {
		name, tokens, limited := strings.Cut(text, " ")
		g := index.Group{Kind: index.State + 1}
		for k := range index.State + 1 {
			if k.String() == name {
				g.Kind = k
			}
		}
		if limited {
			g.Tokens, err = strconv.Atoi(tokens)
		}
		if err != nil || g.Kind > index.State {
			return nil, fmt.Errorf("%.40q; write full, window TOKENS, local TOKENS or state", text)
		}
		all = append(all, g)
	}
	if len(all) > 0 {
		err = index.CheckGroups(all)
	}
	return all, err
}
