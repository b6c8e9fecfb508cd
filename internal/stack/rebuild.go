package stack

import (
	"context"
	"fmt"

	"github.com/kvstored/kvstored/tier"
)

// Rebuild begins a rebuild of the disk tier's index, if begin says so, and tells
// how far the last one is.
func (s *operator) Rebuild(ctx context.Context, begin bool) (tier.Rebuilt, error) {
	r := s.levels.first(func(l *level) bool { return l.Rebuilder != nil })
	if r == nil {
		return tier.Rebuilt{}, fmt.Errorf("rebuild: %w", notThere("there is no disk tier; disk.capacity is 0"))
	}
	if begin {
		if err := s.scanned(tier.Of(r.place)); err != nil {
			return tier.Rebuilt{}, fmt.Errorf("rebuild: %w", err)
		}
		if err := r.Rebuilder.Rebuild(ctx); err != nil {
			return tier.Rebuilt{}, fmt.Errorf("rebuild: %w", err)
		}
	}
	sum, err := r.Rebuilder.Rebuilt()
	if err != nil {
		err = fmt.Errorf("rebuild: %w", err)
	}
	return sum, err
}
