package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/httpd"
	"github.com/kvstored/kvstored/tier"
)

// scope is where a call takes the right admin.
type scope string

const (
	everywhere scope = "every space" // it is about all spaces there can be
	somewhere  scope = "any space"   // it is about none, or the call judges each
)

// call is one request of a user.
type call struct {
	*API
	ctx context.Context // ends with the client and with the daemon
	uid uint32
}

// route is one call of the API.
type route struct {
	method, path string
	scope        scope
	body         int64 // bytes of a request, at most
	// do answers a request, which is JSON.
	do func(c *call, request []byte) (any, error)
	// types are a new request and a new reply, for what describes the call.
	types func() (request, reply any)
}

func routeOf[Q, R any](method, path string, s scope, do func(*call, *Q) (*R, error)) route {
	return route{
		method, path, s, BodyBytes,
		func(c *call, request []byte) (any, error) {
			q := new(Q)
			if err := httpd.Decode(request, q); err != nil {
				return nil, refuse(BadRequest, "%v", err)
			}
			return do(c, q)
		},
		func() (any, any) { return new(Q), new(R) },
	}
}

// ofPrompt is the route with requests that have a prompt.
func (r route) ofPrompt() route {
	r.body = PromptBytes
	return r
}

// routes are all calls, in the order of the document.
func routes() []route {
	return []route{
		routeOf("GET", "/v1/version", somewhere, (*call).version),
		routeOf("GET", "/v1/config", everywhere, (*call).config),
		routeOf("GET", "/v1/spaces", somewhere, (*call).spaces),
		routeOf("GET", "/v1/clients", everywhere, (*call).clients),
		routeOf("GET", "/v1/leases", everywhere, (*call).leases),
		routeOf("GET", "/v1/claims", everywhere, (*call).claims),
		routeOf("POST", "/v1/claims", everywhere, (*call).claim).ofPrompt(),
		routeOf("GET", "/v1/prefixes", everywhere, (*call).prefixes),
		routeOf("POST", "/v1/why", everywhere, (*call).why).ofPrompt(),
		routeOf("GET", "/v1/sample", everywhere, (*call).sample),
		routeOf("PUT", "/v1/policy", everywhere, (*call).setPolicy),
		routeOf("POST", "/v1/upload", everywhere, (*call).upload),
		routeOf("POST", "/v1/forget", somewhere, (*call).forget),
		routeOf("POST", "/v1/scrub", everywhere, (*call).scrub),
	}
}

// allowed is an error unless a user has the right admin where a call takes it.
func allowed(p *access.Policy, uid uint32, s scope) error {
	have := p.Somewhere(uid)
	if s == everywhere {
		have = p.Everywhere(uid)
	}
	switch {
	case have&access.Admin != 0:
		return nil
	case s == everywhere && p.Ruled():
		return refuse(Denied, "user %d lacks the admin right in every space, which this takes", uid)
	}
	return refuse(Denied, "user %d lacks the admin right", uid)
}

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

// refuse is an error with the advice of its code; text says the fault.
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
