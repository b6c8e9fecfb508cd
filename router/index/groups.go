package index

import "fmt"

// Kind is what a group of layers needs of a prefix.
type Kind uint8

// The kinds of groups.
const (
	Full   Kind = iota // attention over all of the prefix: a hole ends it
	Window             // blocks with the last Tokens tokens
	Local              // blocks behind the last multiple of Tokens: chunked attention
	State              // the last block: it holds the state at its end
)

// String is the kind's name.
func (k Kind) String() string {
	if k > State {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return [...]string{"full", "window", "local", "state"}[k]
}

// Group is one group of layers that keep KV alike.
type Group struct {
	Kind   Kind
	Tokens int // of Window and Local; 0 otherwise
}

// from is the first block that a prefix of n blocks needs of the group; n where
// it needs none. It does not fall as n grows.
func (g Group) from(n, blockTokens int) int {
	switch tokens := n * blockTokens; g.Kind {
	case Window:
		return max(tokens-g.Tokens, 0) / blockTokens
	case Local:
		if tokens%g.Tokens == 0 {
			return n
		}
		return tokens / g.Tokens * g.Tokens / blockTokens
	case State:
		return n - 1
	default:
		return 0
	}
}

func (g Group) check() error {
	limited := g.Kind == Window || g.Kind == Local
	switch {
	case g.Kind > State:
		return fmt.Errorf("%s: %w; use full, window, local or state", g.Kind, ErrGroup)
	case limited && (g.Tokens < 1 || g.Tokens > maxGroupTokens):
		return fmt.Errorf("%s of %d tokens: %w; 1 to %d", g.Kind, g.Tokens, ErrGroup, maxGroupTokens)
	case !limited && g.Tokens != 0:
		return fmt.Errorf("%s of %d tokens: %w; only a window and a local group have some", g.Kind, g.Tokens, ErrGroup)
	}
	return nil
}

const maxGroupTokens = 1 << 30

// CheckGroups reports the first thing that is wrong with the groups of a model.
func CheckGroups(all []Group) error {
	if len(all) > MaxGroups {
		return fmt.Errorf("%d groups: %w; at most %d", len(all), ErrGroup, MaxGroups)
	}
	full := false
	for i, g := range all {
		if err := g.check(); err != nil {
			return fmt.Errorf("group %d: %w", i, err)
		}
		full = full || g.Kind == Full
	}
	if !full {
		return fmt.Errorf("none of %d groups is full: %w; without one no length is certain", len(all), ErrGroup)
	}
	return nil
}
