package tier

import (
	"context"
	"fmt"

	"github.com/kvstored/kvstored/key"
)

// Switcher is a tier whose policy of eviction can be replaced while it runs.
type Switcher interface {
	// PolicyName is what package policy calls the present one.
	PolicyName() string
	// SetPolicy replaces it. Nothing is evicted or let go of by that.
	SetPolicy(name string) error
}

// PolicyOf is the policy of a tier; false where there is none.
func (s *Stack) PolicyOf(p Place) (name string, ok bool) {
	t, ok := under[Switcher](s.tiers[p])
	if !ok {
		return "", false
	}
	return t.PolicyName(), true
}

// SetPolicy replaces the policy of a tier.
func (s *Stack) SetPolicy(p Place, name string) error {
	t, ok := under[Switcher](s.tiers[p])
	switch {
	case s.tiers[p] == nil:
		return fmt.Errorf("policy: %w", missing("there is no "+p.String()+" tier"))
	case !ok:
		return fmt.Errorf("policy: %w", missing("the "+p.String()+" tier evicts nothing"))
	}
	if err := t.SetPolicy(name); err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	s.log.Info().Stringer("tier", p).Str("policy", name).Msg("policy replaced")
	return nil
}

// Clear forgets everything that some tiers have when it is called, and
// returns how many chunks that was. No tier means those of this machine: a
// remote one is shared with others, and must be named. What is cleared below
// stays in DRAM if it is there, and is not written again.
func (s *Stack) Clear(ctx context.Context, from Set) (int, error) {
	for p := CPU; p < Places; p++ {
		if from.Has(p) && s.tiers[p] == nil {
			return 0, fmt.Errorf("clear: %w", missing("there is no "+p.String()+" tier"))
		}
	}
	if from == 0 {
		from = Of(CPU)
		if s.tiers[Disk] != nil {
			from |= Of(Disk)
		}
	}
	if err := s.scanned(); from.Has(Disk) && err != nil {
		return 0, fmt.Errorf("clear: %w", err)
	}
	var spaces []key.SpaceID
	s.mu.Lock()
	s.mu.tree.Spaces(func(id key.Hash) bool {
		spaces = append(spaces, id)
		return true
	})
	s.mu.Unlock()
	n := 0
	for _, id := range spaces { // one at a time: the index is locked for one space
		more, err := s.clear(ctx, from, id)
		if err != nil {
			return n, fmt.Errorf("clear: %w", err)
		}
		n += more
	}
	s.log.Info().Int("chunks", n).Msg("cleared")
	return n, nil
}

// clear is Clear for one space.
func (s *Stack) clear(ctx context.Context, from Set, id key.SpaceID) (int, error) {
	d := &deletion{from: from, space: id}
	defer s.coming.refuse(d)()
	n := len(d.list(s))
	return n, s.delete(ctx, d)
}
