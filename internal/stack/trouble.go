package stack

import (
	"errors"
	"fmt"
)

// Trouble says which tiers are off, or take no writes, and why; nil where none is.
func (s *operator) Trouble() error {
	var errs []error
	for _, l := range s.levels.below {
		if l.Health != nil {
			switch err := l.Health.Trouble(); {
			case err == nil:
			case l.Health.Off():
				errs = append(errs, fmt.Errorf("the %s tier is off: %w", l.place, err))
			default:
				errs = append(errs, fmt.Errorf("the %s tier: %w", l.place, err))
			}
		}
	}
	return errors.Join(errs...)
}
