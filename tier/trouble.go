package tier

import (
	"errors"
	"fmt"
)

// Troubled is a tier that says why it is off.
type Troubled interface {
	// Trouble is nil for a tier that is not off. Memory only.
	Trouble() error
}

// Reopener is a Recoverer that may be lost, and opened again, while it is used.
type Reopener interface {
	// Reopened tells after each opening: what the tier has is to be recovered
	// again then.
	Reopened() <-chan struct{}
}

// Trouble says which tiers are off, and why; nil where none is.
func (s *Stack) Trouble() error {
	var errs []error
	for p := Disk; p < Places; p++ {
		if t, ok := under[Troubled](s.tiers[p]); ok {
			if err := t.Trouble(); err != nil {
				errs = append(errs, fmt.Errorf("the %s tier is off: %w", p, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Trouble is what opened the breaker, or the last probe failed over, or why the
// tier behind it is off.
func (b *breaker) Trouble() error {
	if t, ok := under[Troubled](b.Tier); ok {
		if err := t.Trouble(); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.mu.open {
		return nil
	}
	return b.mu.why
}
