package tier

import (
	"errors"
	"fmt"

	"github.com/kvstored/kvstored/internal/ledger"
)

// Refusal gives what a ledger refuses with the name tiers use for it, and
// keeps both. What others hold for now is no space; nil stays nil.
func Refusal(err error) error {
	for _, r := range []struct{ is, name error }{
		{ledger.ErrOverBudget, ErrOverBudget},
		{ledger.ErrOverQuota, ErrOverQuota},
		{ledger.ErrBusy, ErrNoSpace},
		{ledger.ErrFull, ErrNoSpace},
	} {
		if errors.Is(err, r.is) {
			return fmt.Errorf("%w: %w", r.name, err)
		}
	}
	return err
}
