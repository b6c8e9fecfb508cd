package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

// refusal is an error that is answered with its status.
type refusal struct {
	status wire.Status
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status wire.Status, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// statusOf is the code that an error is answered with.
func statusOf(err error) wire.Status {
	var r *refusal
	switch {
	case errors.As(err, &r):
		return r.status
	case errors.Is(err, wire.ErrUnknownOption):
		return wire.StatusUnknownOption
	case errors.Is(err, wire.ErrMalformed):
		return wire.StatusBadRequest
	case errors.Is(err, tier.ErrInconsistent), errors.Is(err, ledger.ErrInconsistent):
		return wire.StatusInconsistentChain
	case errors.Is(err, tier.ErrTooLarge):
		return wire.StatusTooLarge
	case errors.Is(err, tier.ErrOverBudget), errors.Is(err, ledger.ErrOverBudget), errors.Is(err, budget.ErrOver):
		return wire.StatusOverBudget
	case errors.Is(err, tier.ErrOverQuota):
		return wire.StatusOverQuota
	case errors.Is(err, tier.ErrNoSpace), errors.Is(err, ledger.ErrBusy):
		return wire.StatusNoSpace
	case errors.Is(err, tier.ErrNotFound):
		return wire.StatusNotFound
	case errors.Is(err, tier.ErrOff):
		return wire.StatusTierOff
	case errors.Is(err, context.DeadlineExceeded):
		return wire.StatusTimeout
	case errors.Is(err, context.Canceled), errors.Is(err, tier.ErrClosed), errors.Is(err, budget.ErrEnded):
		return wire.StatusClosed
	}
	return wire.StatusInternal
}
