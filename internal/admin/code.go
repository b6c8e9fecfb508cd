package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/tier"
)

// Code is the stable name of what went wrong. Codes are only ever added.
type Code string

// The codes.
const (
	BadRequest  Code = "bad_request"
	Denied      Code = "denied"
	NotFound    Code = "not_found"
	UnknownCall Code = "unknown_call"
	WrongMethod Code = "wrong_method"
	TooLarge    Code = "too_large"
	NoSpace     Code = "no_space"
	TierOff     Code = "tier_off"
	Stopping    Code = "stopping"
	Internal    Code = "internal"
)

// codes are the HTTP status of each code, and what to do where the error itself
// does not say.
var codes = map[Code]struct {
	status int
	do     string
}{
	BadRequest:  {http.StatusBadRequest, "see docs/reference/admin-api.md for what the call takes"},
	Denied:      {http.StatusForbidden, "call as another user, or give this one the right: see listen.admin_uids and access"},
	NotFound:    {http.StatusNotFound, "`kvstored stats` shows the tiers there are"},
	UnknownCall: {http.StatusNotFound, "GET /v1/version lists the calls; a call that is missing is newer than this daemon"},
	WrongMethod: {http.StatusMethodNotAllowed, "use the method in the header Allow"},
	TooLarge:    {http.StatusRequestEntityTooLarge, "send less"},
	NoSpace:     {http.StatusInsufficientStorage, "free what others hold, or try again later"},
	TierOff:     {http.StatusServiceUnavailable, "wait until the tier works again; /readyz and the daemon's log say what is wrong"},
	Stopping:    {http.StatusServiceUnavailable, "call again when the daemon is back"},
	Internal:    {http.StatusInternalServerError, "see the daemon's log"},
}

// Error returns the name, so that errors.Is can compare a Code.
func (c Code) Error() string { return string(c) }

// Unwrap returns the Code.
func (e *Error) Unwrap() error { return e.Code }

// refuse is an error with the advice of its code; text says what is wrong.
func refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...), Do: codes[code].do}
}

// advise replaces the advice of an error.
func (e *Error) advise(advice string) *Error {
	e.Do = advice
	return e
}

// errorOf is what a call that ended with err is answered. The layers below say which
// operation failed; so does the path that was called.
func errorOf(called string, err error) *Error {
	var own *Error
	code := Internal
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, tier.ErrNotFound):
		code = NotFound
	case errors.Is(err, tier.ErrOff):
		code = TierOff
	case errors.Is(err, tier.ErrNoSpace), errors.Is(err, tier.ErrOverBudget):
		code = NoSpace
	case errors.Is(err, context.Canceled), errors.Is(err, tier.ErrClosed), errors.Is(err, budget.ErrEnded):
		code = Stopping
	}
	return &Error{Code: code, Text: strings.TrimPrefix(err.Error(), path.Base(called)+": "), Do: codes[code].do}
}
