package stack

import (
	"errors"
	"fmt"
)

// Trouble says which tiers are off, and why; nil where none is.
func (s *operator) Trouble() error {
	var errs []error
	for _, l := range s.levels.below {
		if l.Health != nil {
			if err := l.Health.Trouble(); err != nil {
				errs = append(errs, fmt.Errorf("the %s tier is off: %w", l.place, err))
			}
		}
	}
	return errors.Join(errs...)
}
