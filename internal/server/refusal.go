package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/prefetch"
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

// appendError appends the reply that refuses a request for err.
func appendError(dst []byte, op wire.Op, id uint64, err error) []byte {
	code := codeOf(err)
	return wire.AppendError(dst, op, id, code, replyOf(err, code, err.Error()))
}

// errorCode is what an error is called.
type errorCode struct {
	err  error
	code wire.Code
}

// full are the errors of reservations and loads for which there is no room.
var full = []errorCode{
	{tier.ErrOverBudget, wire.CodeOverBudget},
	{stale.ErrManyDistrusted, wire.CodeOverBudget},
	{ledger.ErrOverBudget, wire.CodeOverBudget},
	{tier.ErrOverQuota, wire.CodeOverQuota},
	{store.ErrNotAdmitted, wire.CodeDeclined},
}

// requestCodes are the codes that requests are refused with, by the first error that matches.
var requestCodes = slices.Concat([]errorCode{
	{wire.ErrUnknownOption, wire.CodeUnknownOption},
	{wire.ErrMalformed, wire.CodeBadRequest},
	{tier.ErrTooLarge, wire.CodeTooLarge},
}, full, []errorCode{
	{budget.ErrOver, wire.CodeOverBudget},
	{context.Canceled, wire.CodeClosed}, // also of one that waited for room
	{tier.ErrNoSpace, wire.CodeNoSpace},
	{ledger.ErrBusy, wire.CodeNoSpace},
	{tier.ErrNotFound, wire.CodeNotFound},
	{tier.ErrOff, wire.CodeTierOff},
	{context.DeadlineExceeded, wire.CodeTimeout},
	{tier.ErrClosed, wire.CodeClosed},
	{budget.ErrEnded, wire.CodeClosed},
})

// endCodes are those that made a prefix or a reservation short.
var endCodes = slices.Concat([]errorCode{
	{prefetch.ErrDeadline, wire.CodeTimeout},
	{prefetch.ErrCancelled, wire.CodeCancelled},
	{errCancelled, wire.CodeCancelled},
}, full, []errorCode{
	{tier.ErrNoSpace, wire.CodeNoSpace},
	{ledger.ErrBusy, wire.CodeNoSpace},
	{tier.ErrCorrupt, wire.CodeCorrupt},
	{tier.ErrNotFound, wire.CodeGap},
	{tier.ErrClosed, wire.CodeClosed},
})

// codeIn is the code of err in a table, or another.
func codeIn(table []errorCode, err error, otherwise wire.Code) wire.Code {
	for i := range table {
		if errors.Is(err, table[i].err) {
			return table[i].code
		}
	}
	return otherwise
}

// endOf names the error that made a prefix or a reservation short, and the tier that failed.
func endOf(err error) (code wire.Code, failed wire.Tiers) {
	if err == nil {
		return wire.CodeOK, 0
	}
	var load *store.LoadError
	if code = codeIn(endCodes, err, wire.CodeFailed); code == wire.CodeFailed && errors.As(err, &load) {
		failed = wire.Tiers(tier.Of(load.Place))
	}
	return code, failed
}

// codeOf is the code that an error is answered with.
func codeOf(err error) wire.Code {
	var r *refusal
	if errors.As(err, &r) {
		return r.code
	}
	return codeIn(requestCodes, err, wire.CodeInternal)
}

// Operations and codes beyond these share a count, so that clients cannot make more.
const (
	countedOps   = 32
	countedCodes = 48
)

// failures counts the requests that were refused or failed.
type failures [countedOps + 1][countedCodes + 1]atomic.Uint64

func (f *failures) add(op wire.Op, code wire.Code) {
	o := countedOps
	if op.Known() {
		o = min(int(op), countedOps)
	}
	f[o][min(int(code), countedCodes)].Add(1)
}

// Failures is how many requests of an operation were answered with a code.
type Failures struct {
	Op       string `json:"op"` // unknown: none that this daemon knows
	Code     string `json:"code"`
	Requests uint64 `json:"requests"`
}

// read lists the counts, and their sum.
func (f *failures) read() (list []Failures, sum uint64) {
	for o := range f {
		op := "unknown"
		if wire.Op(o).Known() {
			op = wire.Op(o).String()
		}
		for code := range f[o] {
			if n := f[o][code].Load(); n > 0 {
				list, sum = append(list, Failures{op, wire.Code(code).String(), n}), sum+n
			}
		}
	}
	return list, sum
}
