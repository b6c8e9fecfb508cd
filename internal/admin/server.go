package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	_ "net/http/pprof" // for profile
	"net/url"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/httpd"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/socket"
	"github.com/kvstored/kvstored/internal/store"
)

const (
	// Connections is how many administrators there may be at a time, those that
	// wait for a scrub included.
	Connections = 64
	// BodyBytes is the most that a request may have behind its header.
	BodyBytes = 64 << 10
	// PromptBytes is that of one about a prompt: some 600,000 tokens, or 120,000 hashes.
	PromptBytes = 4 << 20
)

// Options of an API.
type Options struct {
	Store  *store.Store
	Server *server.Server
	Sample *explain.Recorder
	Config func() (Config, error) // that is in force
	Log    zerolog.Logger
}

// API answers administrators. It is safe for concurrent use.
type API struct {
	o         Options
	routes    []route
	refusals  zerolog.Logger // some a minute
	summaries summaries
	pages     *http.ServeMux // what is no call, of administrators of every space
}

// New makes an API; Serve starts it.
func New(o Options) *API {
	refusals := o.Log.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Minute})
	a := &API{o: o, routes: routes(), refusals: refusals, summaries: summaries{turn: make(chan struct{}, 1)}, pages: http.NewServeMux()}
	a.pages.HandleFunc("/debug/pprof/", profile)
	return a
}

// PagesPath is where the pages of SetPages begin.
const PagesPath = "/dashboard/"

// SetPages has the API serve pages to administrators of every space. It is called before
// Serve.
func (a *API) SetPages(h http.Handler) { a.pages.Handle(PagesPath, h) }

// Serve answers calls on l, a Unix socket, until ctx ends; then it ends those that
// are being answered, and returns when they have. It closes l.
func (a *API) Serve(ctx context.Context, l net.Listener) error {
	// A browser reaches the socket by a tunnel, and with it the pages of others.
	return httpd.Serve(ctx, l, httpd.Options{Handler: httpd.SameOrigin(a, []string{"kvstored"}, ""), Connections: Connections, Log: a.o.Log})
}

// ServeHTTP answers one call. Who it is from is looked at before anything is read.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	uid, err := peer(r)
	var reply any
	if _, page := a.pages.Handler(r); err == nil && page != "" {
		if err = allowed(a.o.Server.Access(), uid, everywhere); err == nil {
			a.pages.ServeHTTP(w, r)
			return
		}
	} else if err == nil {
		reply, err = a.answer(w, r, uid)
	}
	if err == nil {
		if r.Method != http.MethodGet {
			a.o.Log.Info().Uint32("uid", uid).Str("call", r.Method+" "+r.URL.Path).Dur("took", time.Since(begun)).Msg("called by an administrator")
		}
		httpd.Reply(w, http.StatusOK, reply)
		return
	}
	e := errorOf(r.URL.Path, err)
	if e.Code == Denied || e.Code == TooLarge {
		w.Header().Set("Connection", "close")
	}
	call := r.Method + " " + r.URL.Path
	a.refusals.Warn().Uint32("uid", uid).Str("call", call[:min(len(call), 80)]).Err(e).Msg("a call of an administrator was refused, or failed")
	httpd.Reply(w, codes[e.Code].status, e)
}

// Answers answers calls that only ask, of any user: the page in front of it has looked
// at rights.
func (a *API) Answers() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reply, err := a.ask(w, r)
		if err != nil {
			e := errorOf(r.URL.Path, err)
			httpd.Reply(w, codes[e.Code].status, e)
			return
		}
		httpd.Reply(w, http.StatusOK, reply)
	})
}

func (a *API) ask(w http.ResponseWriter, r *http.Request) (any, error) {
	route, err := a.find(w, r)
	if err != nil {
		return nil, err
	}
	if r.Method != http.MethodGet && route.path != "/v1/why" {
		return nil, refuse(WrongMethod, "a page asks, and changes nothing")
	}
	if route.path == "/v1/why" { // a page is told of prompts that were asked for, of no others
		return route.do(&call{API: a, ctx: r.Context()}, []byte(`{"recent":true}`))
	}
	request, err := read(w, r, route.body)
	if err != nil {
		return nil, err
	}
	return route.do(&call{API: a, ctx: r.Context()}, request)
}

// peer is the user at the other end of a request's connection.
func peer(r *http.Request) (uid uint32, err error) {
	conn := httpd.Conn(r.Context())
	if _, ok := conn.(*net.UnixConn); !ok {
		return 0, errors.New("administrators connect over a Unix socket only")
	}
	return socket.PeerOf(conn)
}

func (a *API) answer(w http.ResponseWriter, r *http.Request, uid uint32) (any, error) {
	policy := a.o.Server.Access()
	if err := allowed(policy, uid, somewhere); err != nil { // before it learns what there is
		return nil, err
	}
	route, err := a.find(w, r)
	if err != nil {
		return nil, err
	}
	if err := allowed(policy, uid, route.scope); err != nil {
		return nil, err
	}
	request, err := read(w, r, route.body)
	if err != nil {
		return nil, err
	}
	// The call may take long; its client's departure is noticed by a read, which
	// must not end by itself.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return route.do(&call{a, r.Context(), uid}, request)
}

// find is the route of a request.
func (a *API) find(w http.ResponseWriter, r *http.Request) (*route, error) {
	var methods []string
	for i := range a.routes {
		switch route := &a.routes[i]; {
		case route.path != r.URL.Path:
		case route.method == r.Method:
			return route, nil
		default:
			methods = append(methods, route.method)
		}
	}
	if methods == nil {
		return nil, refuse(UnknownCall, "there is no call %.80q", r.URL.Path)
	}
	allow := strings.Join(methods, ", ")
	w.Header().Set("Allow", allow)
	return nil, refuse(WrongMethod, "%s takes %s, not %.20s", r.URL.Path, strings.Join(methods, " or "), r.Method)
}

// read is the request as JSON: the body, or of a GET its query.
func read(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	if r.Method != http.MethodGet {
		if r.URL.RawQuery != "" {
			return nil, refuse(BadRequest, "what follows ? in the path is not read; send it as JSON in the body")
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			return nil, refuse(TooLarge, "the body has more than %d bytes", large.Limit)
		case err != nil:
			return nil, refuse(BadRequest, "the body did not come: %v", err)
		}
		return body, nil
	}
	if r.ContentLength != 0 {
		return nil, refuse(BadRequest, "a GET has no body; put what it asks for behind ? in the path")
	}
	asked, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, refuse(BadRequest, "what follows ? in the path cannot be read: %v", err)
	}
	query := make(map[string]string)
	for name, values := range asked {
		if len(values) != 1 {
			return nil, refuse(BadRequest, "%.80q is there %d times; give it once", name, len(values))
		}
		query[name] = values[0]
	}
	return json.Marshal(query)
}

// profile answers with a profile of the daemon, as go tool pprof asks for it. One of some
// seconds takes as long.
func profile(w http.ResponseWriter, r *http.Request) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(time.Time{})
	http.DefaultServeMux.ServeHTTP(w, r) // which nothing else serves
}
