package admin

import (
	"context"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/httpd"
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
