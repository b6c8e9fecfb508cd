package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

// refusal is an error that is answered with its code.
type refusal struct {
	code  wire.Code
	text  string
	limit uint64 // the largest value that would have passed; 0: there is none to tell
}

func (r *refusal) Error() string { return r.text }

func refuse(code wire.Code, format string, args ...any) error {
	return &refusal{code: code, text: fmt.Sprintf(format, args...)}
}

// tooLarge refuses a request that is beyond a limit, now and later.
func tooLarge(limit int64, format string, args ...any) error {
	return &refusal{wire.CodeTooLarge, fmt.Sprintf(format, args...), uint64(limit)}
}

// replyOf is the body of the reply that refuses for err.
func replyOf(err error, code wire.Code, text string) *wire.ErrorReply {
	m := wire.Refusal(code, text)
	var r *refusal
	if errors.As(err, &r) {
		m.Limit = r.limit
	}
	return m
}

// codeOf is the code that an error is answered with.
func codeOf(err error) wire.Code {
	var r *refusal
	switch {
	case errors.As(err, &r):
		return r.code
	case errors.Is(err, wire.ErrUnknownOption):
		return wire.CodeUnknownOption
	case errors.Is(err, wire.ErrMalformed):
		return wire.CodeBadRequest
	case errors.Is(err, tier.ErrTooLarge):
		return wire.CodeTooLarge
	case errors.Is(err, tier.ErrOverBudget), errors.Is(err, ledger.ErrOverBudget), errors.Is(err, budget.ErrOver):
		return wire.CodeOverBudget
	case errors.Is(err, tier.ErrOverQuota):
		return wire.CodeOverQuota
	case errors.Is(err, stack.ErrNotAdmitted):
		return wire.CodeDeclined
	case errors.Is(err, context.Canceled): // also of one that waited for room
		return wire.CodeClosed
	case errors.Is(err, tier.ErrNoSpace), errors.Is(err, ledger.ErrBusy):
		return wire.CodeNoSpace
	case errors.Is(err, tier.ErrNotFound):
		return wire.CodeNotFound
	case errors.Is(err, tier.ErrOff):
		return wire.CodeTierOff
	case errors.Is(err, context.DeadlineExceeded):
		return wire.CodeTimeout
	case errors.Is(err, tier.ErrClosed), errors.Is(err, budget.ErrEnded):
		return wire.CodeClosed
	}
	return wire.CodeInternal
}
